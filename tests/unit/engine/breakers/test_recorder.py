"""What is counted for breakers, and what is not."""

from datetime import timedelta
from typing import Any

import pytest

from oncemq.contracts.verdict import DUPLICATE, PROCEED, RETURNED, Outcome
from oncemq.engine.breakers.breaker import Phase
from oncemq.engine.breakers.recorder import BreakerRecorder
from oncemq.engine.breakers.rule import BreakerKind, BreakerRule
from oncemq.errors import MessageRefused
from oncemq.message.envelope import Delivery, Message
from oncemq.testing.fake_clock import FakeClock


def recorder(kind: BreakerKind, clock: FakeClock | None = None, **fields: Any) -> BreakerRecorder:
    """Return one for consumer `points`."""
    rule = BreakerRule(kind, **{"above": 0.5, "minimum": 10, **fields})
    return BreakerRecorder({"points": [rule], "other": []}, clock or FakeClock())


def share(of: BreakerRecorder) -> float:
    """Return the share that it finds."""
    of.look()
    (state,) = of.states("points")
    return state.share


def delivery(key: str = "a") -> Delivery:
    """Return one of a key."""
    made = Delivery(Message("orders", b""), token=key, generation=1)
    made.key = key
    return made


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.REJECT, Outcome.CONFLICT])
def test_failures_are_counted(outcome: Outcome) -> None:
    """Whatever becomes of them."""
    counts = recorder(BreakerKind.FAILURES)
    counts.unit_done("points", {outcome: 3, Outcome.PROCEED: 1}, size=4, seconds=0.1)
    assert share(counts) == 0.75


@pytest.mark.parametrize("outcome", [Outcome.RETURNED, Outcome.DEFER, Outcome.WAIT, Outcome.VOID])
def test_what_is_not_decided_is_not_counted(outcome: Outcome) -> None:
    """It comes again."""
    counts = recorder(BreakerKind.DUPLICATES)
    counts.unit_done("points", {outcome: 6, Outcome.DUPLICATE: 1, Outcome.PROCEED: 1}, size=8, seconds=0.1)
    assert share(counts) == 0.5


def test_unreadable_messages_are_failures() -> None:
    """No unit has seen them."""
    counts = recorder(BreakerKind.FAILURES)
    broken = delivery()
    broken.refusal = MessageRefused("no JSON")
    counts.dead_lettered("points", broken, code="undecodable")
    counts.unit_done("points", {Outcome.PROCEED: 1}, size=1, seconds=0.1)
    assert share(counts) == 0.5


def test_a_dead_letter_of_a_unit_is_counted_once() -> None:
    """Its unit has counted it."""
    counts = recorder(BreakerKind.FAILURES)
    counts.unit_done("points", {Outcome.REJECT: 1, Outcome.PROCEED: 1}, size=2, seconds=0.1)
    counts.dead_lettered("points", delivery(), code="rejected")
    assert share(counts) == 0.5


def test_keys_are_counted_of_messages_that_came_to_an_end() -> None:
    """A returned message is not counted each time."""
    counts = recorder(BreakerKind.HOT_KEY)
    counts.judged("points", [(delivery(), PROCEED), (delivery("b"), DUPLICATE), (delivery(), RETURNED)])
    assert share(counts) == 0.5


def test_other_consumers_cost_nothing_and_change_nothing() -> None:
    """One without breakers is not counted."""
    counts = recorder(BreakerKind.FAILURES)
    counts.unit_done("other", {Outcome.REJECT: 100}, size=100, seconds=0.1)
    counts.judged("other", [(delivery(), PROCEED)])
    assert (counts.look(), counts.states("other"), counts.rate("other")) == ([], (), None)


def test_a_change_is_told_once() -> None:
    """And not at each look."""
    clock = FakeClock()
    counts = recorder(BreakerKind.FAILURES, clock)
    counts.unit_done("points", {Outcome.REJECT: 10}, size=10, seconds=0.1)
    assert [(name, each.phase) for name, each in counts.look()] == [("points", Phase.OPEN)]
    clock.advance(timedelta(seconds=1))
    assert counts.look() == []
