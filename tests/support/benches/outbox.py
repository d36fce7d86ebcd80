"""An app that publishes from its handlers, over scripted brokers and each database."""

import json
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import Engine, delete

from oncemq.engine.plan import AppPlan
from oncemq.ledger.messages import outbox
from oncemq.testing.scripted import ScriptedAdapter
from support.effects import empty
from support.engine import make_app, make_consumer, make_topic

TOPICS = MappingProxyType(
    {
        "shipped": make_topic("shipped"),
        "billed": make_topic("billed", broker="bank"),
        "raw": make_topic("raw", key=None, body_format="bytes"),
    }
)


@pytest.fixture
def engine(database: Engine) -> Engine:
    """Each database, its outbox empty."""
    empty(database)
    with database.begin() as connection:
        connection.execute(delete(outbox.TABLE))
    return database


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """The broker that deliveries come from."""
    return ScriptedAdapter()


def order(number: int, key: str = "k", **more: Any) -> bytes:
    """Return the body of an order."""
    return json.dumps({"id": f"o{number}", "key": key, **more}).encode()


def app(
    adapter: ScriptedAdapter, engine: Engine | None, handler: Callable[..., Any], **fields: Any
) -> AppPlan:
    """Return an app whose handler may publish to all topics."""
    more = {name: fields.pop(name) for name in ("effects",) if name in fields}
    return make_app(adapter, engine, make_consumer(handler, topics=TOPICS, **more), topics=TOPICS, **fields)


def sent(adapter: ScriptedAdapter) -> list[str]:
    """Return the ids of the orders in what was published, in order."""
    return [json.loads(sent.message.body)["id"] for sent in adapter.published]


def waiting(engine: Engine) -> int:
    """Return how many rows the outbox has."""
    with engine.connect() as connection:
        return outbox.depth(connection, "shop").messages
