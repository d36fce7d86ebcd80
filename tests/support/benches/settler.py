"""A settler with a broker that remembers and refuses."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.engine.settlement.settler import Settler
from oncemq.message.envelope import Delivery
from oncemq.observe.observers import Observers
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.recording_sink import RecordingSink
from oncemq.testing.scripted import ScriptedAdapter
from support.heard import Heard

PUBLISHED = datetime(2025, 12, 31, 23, 0, tzinfo=UTC)


class Desk:
    """A settler with everything around it."""

    def __init__(self, *, attempts: int = 3, sleep: Callable[[float], object] | None = None) -> None:
        self.adapter = ScriptedAdapter()
        self.adapter.open([Subscription("points", "orders", "loyalty")], RecordingSink())
        self.heard = Heard()
        self.clock = FakeClock()
        self.clock.advance(timedelta(days=1))
        self.slept: list[float] = []
        self.noted: list[tuple[Delivery, str, str]] = []
        self.tried: list[tuple[Delivery, str, str]] = []
        self.passed: list[str] = []
        self.leaving = False
        self.settler = Settler(
            "points",
            self.adapter,
            lambda _delivery: RetryPolicy(attempts=attempts, first=timedelta(seconds=1), factor=2, jitter=0),
            self.clock,
            Observers([self.heard]),
            self.noted.extend,
            lambda: self.leaving,
            sleep or self.slept.append,
            self.passed.append,
            longest=timedelta(days=7),
            tried=self.tried.extend,
        )

    def delivery(self, body: bytes = b'{"key": "k"}', **fields: Any) -> Delivery:
        """Return a delivery that the adapter has handed over, understood."""
        fields.setdefault("published_at", PUBLISHED)
        delivery = self.adapter.deliver(body, **fields)
        delivery.key = "k"
        return delivery

    def settle(self, *pairs: Any) -> None:
        """Settle (delivery, verdict) pairs."""
        self.settler.settle(pairs)


@pytest.fixture
def desk() -> Desk:
    """A settler that allows three attempts."""
    return Desk()
