"""Consumers whose effects are outside the database, and the gateway that counts these effects."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from oncemq.contracts.checks import Effects
from oncemq.contracts.strategy import Strategy
from oncemq.errors import Reject, Retry
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer

EXTERNAL = Effects.EXTERNAL


def order(number: int, key: str | None = None, **fields: Any) -> bytes:
    """Return a message's body; each order is a key of its own unless told otherwise."""
    return json.dumps({"id": number, "key": key or f"k{number}", **fields}).encode()


def plan_of(
    adapter: ScriptedAdapter, handler: Callable[..., Any], strategies: Sequence[Strategy] = (), **fields: Any
) -> Any:
    """Return an app without database and with one consumer."""
    return make_app(adapter, None, make_consumer(handler, strategies, effects=EXTERNAL, **fields))


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """The broker."""
    return ScriptedAdapter()


class Gateway:
    """What a handler does outside: counted, sync or async, and failing where a message says so."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def send(self, order: dict) -> None:
        """Handle one message."""
        self.done.append(order["id"])
        if order.get("fault") == "raise":
            raise ValueError("bad")
        if order.get("fault") == "exit":
            raise SystemExit(3)
        if order.get("fault") == "reject":
            raise Reject("no")
        if order.get("fault") == "later":
            raise Retry("busy", after=timedelta(minutes=7))

    async def send_async(self, order: dict) -> None:
        """Handle one message."""
        await asyncio.sleep(0)
        self.send(order)

    def handler(self, kind: str) -> Callable[..., Any]:
        """Return the sync or the async one."""
        return self.send_async if kind == "async" else self.send


@pytest.fixture
def gateway() -> Gateway:
    """The world outside."""
    return Gateway()


both = pytest.mark.parametrize("kind", ["sync", "async"])
