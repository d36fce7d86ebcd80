"""An app on every kind of broker, the document that describes it, and the official JSON Schema of such documents."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from oncemq.asyncapi import asyncapi_document
from oncemq.asyncapi.document import Description
from oncemq.config import load

APP = """
app: loyalty
brokers:
  shop: {url: "amqp://bob:hunter2secret@rabbit-1:5672/sales", hosts: ["rabbit-2:5673"]}
  rides: {url: "rocketmq://name-server:9876", username: alice, password: hunter3secret, namespace: live}
  clicks: {url: "kafka://one:9092,two:9092", username: carol, password: hunter4secret, sasl: SCRAM-SHA-256}
  local: {url: "embedded:///notes.db"}
database: {url: "sqlite:///loyalty.db"}
topics:
  order.paid: {broker: shop, key: body.order_id, identity: [body.order_id, body.payment_no], strategies: [unique_key], partitions: 2}
  legacy: {broker: shop, key: body.order_id, queue: old-orders, strategies: [none]}
  fan: {broker: shop, key: body.order_id, exchange: everything, exchange_type: fanout, strategies: [none]}
  ride-events:
    broker: rides
    key: "keys[0]"
    version: body.version
    tags: [new, done]
    strategies: [unique_key, {state_machine: {to: body.status, states: [created, done]}}]
  clicks: {broker: clicks, key: body.sku, strategies: [unique_key], partitions: 12}
  "notes/of the day": {broker: local, key: body.id, strategies: [unique_key]}
  order.shipped: {broker: shop, key: body.order_id, schema: "described_handlers:Shipped"}
  plain: {broker: local, key: "keys[0]", format: text, strategies: [unique_key]}
consumers:
  award-points:
    topic: order.paid
    group: loyalty
    handler: "described_handlers:award"
    publishes: [order.shipped]
    retry: {attempts: 3, never: [ValueError]}
  mail: {topic: order.paid, handler: "described_handlers:mail", effects: external, strategies: [two_phase: {verify: "described_handlers:verify"}]}
  track: {topic: ride-events, handler: "described_handlers:ride"}
  click: {topic: clicks, handler: "described_handlers:click"}
  note: {topic: "notes/of the day", handler: "described_handlers:note", expires: 10m}
  old: {topic: legacy, handler: "described_handlers:note"}
  all: {topic: fan, handler: "described_handlers:opaque"}
"""

HANDLERS = '''
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema
from sqlalchemy.orm import Session

from oncemq import Batch, Envelope, Publisher


class Line(BaseModel):
    sku: str
    count: int = Field(1, ge=1)


class OrderPaid(BaseModel):
    order_id: str
    payment_no: int
    at: datetime
    place: tuple[float, float] | None = None
    lines: list[Line] = []


class Receipt(BaseModel):
    order_id: str
    email: str


class Shipped(BaseModel):
    order_id: str


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    lead: Annotated[Line, Field(description="what it is led by")]


class Ride(BaseModel):
    status: str
    passenger: Annotated[Cat | Dog, Field(discriminator="kind")]


class Opaque:
    pass


Strange = Annotated[Opaque, GetPydanticSchema(lambda _, __: core_schema.is_instance_schema(Opaque))]


def award(order: OrderPaid, session: Session, publisher: Publisher) -> None:
    """Give a point for every ten paid.

    And no more.
    """


def mail(receipt: Receipt) -> None: ...
def verify(envelope: Envelope): ...
def ride(event: Ride) -> None: ...
def click(lines: Batch[Line]) -> None: ...
def note(body: dict) -> None: ...
def opaque(body: Strange) -> None: ...
'''


@pytest.fixture(scope="session")
def official() -> Draft7Validator:
    """The official JSON Schema of AsyncAPI 3.0.0; specification/README.md says where it comes from."""
    path = Path(__file__).with_name("specification") / "asyncapi-3.0.0.json"
    return Draft7Validator(json.loads(path.read_text()))


@pytest.fixture
def describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Description]]:
    """Describe an app whose text is given; its handlers are HANDLERS."""
    (tmp_path / "described_handlers.py").write_text(HANDLERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "described_handlers", raising=False)
    opened: list[Any] = []

    def described(text: str) -> Description:
        (tmp_path / "app.yaml").write_text(text)
        loaded = load([tmp_path / "app.yaml"])
        opened.extend(loaded.plan.engines)
        return asyncapi_document(loaded, "1.4.0", tmp_path)

    yield described
    for engine in opened:
        engine.dispose()


@pytest.fixture
def document(describe: Callable[[str], Description]) -> dict[str, Any]:
    """The document of APP, as it is written into a file."""
    written: dict[str, Any] = json.loads(json.dumps(describe(APP).document))
    return written
