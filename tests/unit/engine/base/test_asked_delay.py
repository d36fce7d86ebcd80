"""Delays that producers ask for always end, whatever their messages say of their times."""

from datetime import datetime, timedelta
from unittest.mock import sentinel

import pytest

from oncemq.contracts.unit import Item
from oncemq.contracts.verdict import PROCEED, Outcome, Verdict
from oncemq.engine.base.asked_delay import LONGEST_HOP, AskedDelay
from oncemq.message.envelope import Delivery, Message, make_envelope
from oncemq.message.expressions import compile_expression
from oncemq.message.headers import WAITING_SINCE
from oncemq.testing.fake_clock import FakeClock

LIMIT = timedelta(hours=1)


class Bench:
    """Decides about one message that is delivered again whenever its wait is over."""

    def __init__(self, asked: str, **headers: str) -> None:
        self.clock = FakeClock()
        self.delay = AskedDelay(compile_expression("headers.delay"), LIMIT, self.clock)
        self.headers = {"delay": asked, **headers}
        self.published: datetime | None = None

    def decide(self) -> Verdict:
        """Return the verdict now."""
        message = Message("orders", b"{}", headers=self.headers, published_at=self.published)
        envelope = make_envelope("main", "orders", "shop", "k", None, "1", message)
        return self.delay.decide(sentinel.run, Item(Delivery(message), envelope, {}))

    def waits(self) -> timedelta:
        """Return how long it waits in all; each return has the header that the settlement of a wait writes."""
        began = self.clock.now()
        for _ in range(100):
            verdict = self.decide()
            if verdict is PROCEED:
                return self.clock.now() - began
            assert verdict.outcome is Outcome.WAIT
            assert verdict.delay is not None
            assert timedelta(0) < verdict.delay <= LONGEST_HOP
            self.headers.setdefault(WAITING_SINCE, self.clock.now().isoformat())
            self.clock.advance(verdict.delay)
        raise AssertionError("it waits for ever")


@pytest.mark.parametrize("published", [None, timedelta(days=9000), timedelta(seconds=1)], ids=str)
def test_a_wait_ends_without_a_time_that_can_be_believed(published: timedelta | None) -> None:
    """Where the broker tells none, or one in the future, it counts from the first delivery."""
    bench = Bench("45m")
    bench.published = None if published is None else bench.clock.now() + published
    assert bench.waits() <= timedelta(minutes=45)


def test_a_wait_counts_from_when_the_message_was_published() -> None:
    """Not from when it arrived."""
    bench = Bench("45m")
    bench.published = bench.clock.now() - timedelta(minutes=40)
    assert bench.waits() == timedelta(minutes=5)


@pytest.mark.parametrize("asked", ["30d", "2999-01-01T00:00:00Z"])
@pytest.mark.parametrize("published", [None, timedelta(0)], ids=["unknown", "known"])
def test_no_wait_is_longer_than_the_consumer_allows(asked: str, published: timedelta | None) -> None:
    """Whatever is asked for; the broker holds it for no longer than it is known to hold one."""
    bench = Bench(asked)
    bench.published = None if published is None else bench.clock.now() + published
    assert bench.waits() == LIMIT
