"""Consumers that park messages, over a scripted broker and each database."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, func, select

from oncemq.ledger.messages import parking
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.scripted import ScriptedAdapter

SOON = RetryPolicy(attempts=3, first=timedelta(milliseconds=10), factor=1)


class Seen:
    """What a handler was given, in order, and what it shall do.

    Attributes:
        ids: of the messages whose handler began.
        done: of those that it ended well for.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.done: list[str] = []
        self.fails: dict[str, list[Exception]] = {}
        self.changed = threading.Condition()

    def handle(self, order: dict) -> None:  # type: ignore[type-arg]
        """Fail as often as ordered."""
        with self.changed:
            self.ids.append(order["id"])
            self.changed.notify_all()
            errors = self.fails.get(order["id"], [])
            if errors:
                raise errors.pop(0)
            self.done.append(order["id"])

    def wait_for(self, *done: str) -> None:
        """Wait until exactly these have ended well, in this order."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.done) >= len(done), 20)
        assert self.done == list(done)


def order(number: int, key: str = "a") -> bytes:
    """Return message `number` of a key."""
    return json.dumps({"id": f"{key}{number}", "key": key, "n": number}).encode()


@pytest.fixture
def seen() -> Seen:
    """Return a fresh record."""
    return Seen()


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """Return a broker that does what the test says."""
    return ScriptedAdapter()


@pytest.fixture
def name(fresh: str) -> str:
    """Return a consumer's name of the test's own."""
    return fresh


@pytest.fixture
def parked(engine: Engine, name: str) -> Callable[[], int]:
    """Return how many messages of the test's consumer are parked."""

    def count() -> int:
        with engine.connect() as connection:
            ours = parking.TABLE.c.consumer == f"shop.{name}"
            return int(
                connection.execute(select(func.count()).select_from(parking.TABLE).where(ours)).scalar_one()
            )

    return count
