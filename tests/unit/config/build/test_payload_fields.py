"""What `key`, `version` and `identity` read is compared with the handler's payload type."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from oncemq import App, Batch
from oncemq.errors import ConfigError
from support.declared import CATALOG


class Customer(BaseModel):
    """A part of an order."""

    number: str


class Order(BaseModel):
    """Takes any further fields, which it ignores."""

    order_id: str
    payment: int = Field(alias="paymentNo")
    customer: Customer | None = None
    extra: dict[str, Any] = {}


class StrictOrder(BaseModel):
    """Forbids further fields."""

    model_config = ConfigDict(extra="forbid")
    order_id: str


@dataclass
class Ride:
    """A dataclass is a payload, too."""

    ride_id: str


def warnings(payload: Any, **meaning: Any) -> list[str]:
    """Return what `check` says about a consumer of such payloads."""
    app = App("shop", brokers={"main": "scripted://host"}, database="sqlite://", catalog=CATALOG)
    app.topic("orders", strategies=["decide"], **meaning)

    def handle(order: Any) -> None: ...

    handle.__annotations__["order"] = payload
    app.consumer(topic="orders")(handle)
    return [text for text in app.check() if "names a field" in text]


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        (Order, "body.order_id"),
        (Order, "body.paymentNo"),
        (Order, "body.payment"),
        (Order, "body.customer.number"),
        (Order, "body.extra.anything"),
        (Order, "body.tenant"),
        (Order, "headers.oder_id"),
        (dict, "body.order_idd"),
        (Ride, "body.ride_id"),
        (list[Order], "body.order_idd"),
        (Order | dict, "body.order_id"),
    ],
)
def test_what_may_be_there_is_not_warned_of(payload: Any, key: str) -> None:
    """Fields by name and by alias, nested ones, and what a body may hold besides its type say nothing."""
    assert warnings(payload, key=key) == []


@pytest.mark.parametrize(
    ("payload", "meaning", "said"),
    [
        (
            Order,
            {"key": "body.oder_id"},
            "body.oder_id names a field that Order does not have – did you mean 'order_id'?",
        ),
        (Order, {"key": "body.customer.nummber"}, "did you mean 'number'?"),
        (Ride, {"key": "body.rideid"}, "Ride does not have – did you mean 'ride_id'?"),
        (Batch[Order], {"key": "body.oder_id"}, "did you mean 'order_id'?"),
        (
            Order,
            {"key": "body.order_id", "identity": ["body.order_id", "body.paymentno"]},
            "did you mean 'paymentNo'?",
        ),
    ],
)
def test_a_near_miss_is_warned_of(payload: Any, meaning: dict[str, Any], said: str) -> None:
    """A field that is nearly one of the type's is most likely meant to be it."""
    (text,) = warnings(payload, **meaning)
    assert said in text


def test_a_forbidden_field_is_an_error() -> None:
    """A message with such a key could never be handled."""
    with pytest.raises(
        ConfigError,
        match=r"body\.tenant names a field that StrictOrder does not have – its fields are order_id",
    ):
        warnings(StrictOrder, key="body.tenant")
