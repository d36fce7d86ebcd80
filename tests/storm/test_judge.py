"""The oracle finds every kind of wrong ledger; it is worth nothing if it does not."""

import pytest

from storm.oracle import judge as kinds
from storm.oracle.evidence import Effect, Evidence, Fate, Fault, Letter, Note, Promise, Seen, Sent
from storm.oracle.judge import judge

SENT = {
    "a1": Sent("a", step=1),
    "a2": Sent("a", step=2, attempted=2, confirmed=2),
    "b1": Sent("b", kind="reject"),
    "c1": Sent("c", attempted=1, confirmed=0),
}
PROMISE = Promise(fates={"reject": frozenset({Fate.DEAD})}, attempts=3, reruns=0)


def effect(number: int, identity: str, *, attempt: int = 1, process: int = 7) -> Effect:
    """Return an effect of the key that the identity's first letter names."""
    return Effect(number, identity, identity[0], attempt, process)


GOOD = (effect(1, "a1"), effect(2, "a2"))
DEAD = (Letter("b1", "rejected", 1),)
ARRIVED = (Seen(7, "a1", 1), Seen(7, "a2", 1), Seen(7, "b1", 1), Seen(7, "a2", 1))
"""The order in which one process received."""


def evidence(**changes: object) -> Evidence:
    """Return evidence with which nothing is wrong, but for `changes`."""
    return Evidence(**{"sent": SENT, "effects": GOOD, "letters": DEAD, "arrivals": ARRIVED, **changes})  # type: ignore[arg-type]


def test_a_kept_promise_has_no_violations() -> None:
    """Applied once, a duplicate, a dead letter, and an unconfirmed message of which nothing became."""
    assert judge(evidence(), PROMISE) == []


def test_an_unconfirmed_message_may_be_applied() -> None:
    """Anyone who got no answer does not know; both outcomes are right."""
    assert judge(evidence(effects=(*GOOD, effect(3, "c1"))), PROMISE) == []


@pytest.mark.parametrize(
    ("kind", "what", "changes"),
    [
        (kinds.LOST, "a2", {"effects": GOOD[:1]}),
        (kinds.DOUBLE, "a2", {"effects": (*GOOD, effect(3, "a2"))}),
        (kinds.UNEXPECTED, "x1", {"effects": (*GOOD, effect(3, "x1"))}),
        (kinds.UNEXPECTED, "x1", {"letters": (*DEAD, Letter("x1", "rejected", 1))}),
        (kinds.TWO_FATES, "a2", {"letters": (*DEAD, Letter("a2", "crashed", 1))}),
        (kinds.TWO_FATES, "b1", {"notes": (Note("b1", "parked", "early"),)}),
        (kinds.WRONG_FATE, "b1", {"letters": (), "effects": (*GOOD, effect(3, "b1"))}),
        (kinds.WRONG_FATE, "a2", {"effects": GOOD[:1], "letters": (*DEAD, Letter("a2", "crashed", 3))}),
        (kinds.NO_REASON, "b1", {"letters": (Letter("b1", "", 1),)}),
        (kinds.NO_REASON, "a2", {"notes": (Note("a2", "parked", ""),)}),
        (kinds.NO_REASON, "a2", {"notes": (Note("a2", "stale", "late"),)}),
        (kinds.COPIES, "b1", {"letters": DEAD * 2}),
        (kinds.ATTEMPTS, "b1", {"letters": (Letter("b1", "attempts-exhausted", 4),)}),
        (kinds.ATTEMPTS, "a1", {"tried": (Seen(7, "a1", 4),)}),
        (kinds.ATTEMPTS, "a1", {"tried": (Seen(7, "a1", 1),) * 4}),
        (kinds.ORDER, "a", {"effects": (effect(1, "a2"), effect(2, "a1"))}),
        (kinds.LEFT_BEHIND, "3 unacked", {"remains": ("3 unacked",)}),
        (kinds.NOT_FIRED, "cut", {"faults": (Fault("cut", 2, 1),)}),
    ],
)
def test_each_kind_of_violation_is_found(kind: str, what: str, changes: dict[str, object]) -> None:
    """One thing is wrong, and that one thing is said."""
    found = judge(evidence(**changes), PROMISE)
    assert [(violation.kind, violation.what) for violation in found] == [(kind, what)]


def test_a_stale_message_is_right_when_a_later_one_of_its_key_was_applied() -> None:
    """Late is a fate, and what overtook it is the proof."""
    promise = Promise(fates={**PROMISE.fates, "plain": frozenset({Fate.APPLIED, Fate.STALE})})
    late = evidence(effects=GOOD[1:], notes=(Note("a1", "stale", "a is further on"),))
    assert judge(late, promise) == []


def test_steps_that_fall_are_found_across_processes() -> None:
    """Where a strategy promises order, it promises it to all processes together."""
    falling = evidence(effects=(effect(1, "a2", process=7), effect(2, "a1", process=8)))
    assert [violation.kind for violation in judge(falling, PROMISE)] == []
    rising = Promise(fates=PROMISE.fates, attempts=3, reruns=0, rising=True)
    assert [violation.kind for violation in judge(falling, rising)] == [kinds.ORDER]


def test_a_retried_message_has_lost_its_place() -> None:
    """Order per key holds until the first retry."""
    arrived = (*ARRIVED, Seen(7, "a1", 2))
    assert (
        judge(evidence(effects=(effect(1, "a2"), effect(2, "a1", attempt=2)), arrivals=arrived), PROMISE)
        == []
    )


def test_a_message_that_the_ledger_held_may_precede_what_arrived_before_its_copy() -> None:
    """It failed in a process that died; the next one runs it from the ledger, and receives its copy after a later message."""
    arrived = (Seen(6, "a1", 1), Seen(7, "a2", 1), Seen(7, "a1", 1))
    effects = (effect(1, "a1", attempt=2), effect(2, "a2"))
    assert judge(evidence(effects=effects, arrivals=arrived), PROMISE) == []
    untried = (effect(1, "a1"), effect(2, "a2"))
    assert [found.kind for found in judge(evidence(effects=untried, arrivals=arrived), PROMISE)] == [
        kinds.ORDER
    ]


def test_a_message_that_was_moved_has_lost_its_place() -> None:
    """Order per key holds until a member that left has moved a message to the group's retries."""
    rising = Promise(fates=PROMISE.fates, attempts=3, reruns=0, rising=True, retries_lose_place=True)
    falling = evidence(effects=(effect(1, "a2"), effect(2, "a1", process=8)))
    again = evidence(effects=falling.effects, arrivals=(*ARRIVED, Seen(8, "a1", 1)))
    assert [violation.kind for violation in judge(again, rising)] == [kinds.ORDER]
    moved = evidence(effects=falling.effects, arrivals=(*ARRIVED, Seen(8, "a1", 1, moved=True)))
    assert judge(moved, rising) == []


def test_a_held_message_keeps_its_place() -> None:
    """What waited in the ledger is applied before what came later, also by another process and in a later attempt."""
    held = Promise(fates=PROMISE.fates, attempts=3, reruns=0, ordered=False, held=True)
    overtaken = (effect(1, "a2"), effect(2, "a1", attempt=2, process=8))
    assert [violation.kind for violation in judge(evidence(effects=overtaken), held)] == [kinds.ORDER]
    again = (*ARRIVED, Seen(8, "a1", 1))
    assert judge(evidence(effects=overtaken, arrivals=again), held) == []


def test_steps_may_fall_where_a_retry_has_lost_its_place() -> None:
    """Where the broker alone keeps order, a retried message comes late; its neighbours still rise."""
    rising = Promise(fates=PROMISE.fates, attempts=3, reruns=0, rising=True, retries_lose_place=True)
    falling = evidence(effects=(effect(1, "a2"), effect(2, "a1", process=8)))
    assert [violation.kind for violation in judge(falling, rising)] == [kinds.ORDER]
    retried = evidence(effects=falling.effects, arrivals=(*ARRIVED, Seen(8, "a1", 2)))
    assert judge(retried, rising) == []


def test_what_arrived_again_may_be_applied_in_either_order() -> None:
    """After a lost connection the broker delivers again, in an order of its own."""
    again = (*ARRIVED, Seen(7, "a1", 1))
    assert judge(evidence(effects=(effect(1, "a2"), effect(2, "a1")), arrivals=again), PROMISE) == []


def test_copies_that_faults_explain_are_allowed() -> None:
    """A death between a confirmed dead letter and the acknowledgement leaves one more copy, and no more."""
    promise = Promise(fates=PROMISE.fates, attempts=3, reruns=0, copies=1)
    assert judge(evidence(letters=DEAD * 2), promise) == []
    assert [found.kind for found in judge(evidence(letters=DEAD * 3), promise)] == [kinds.COPIES]


def test_each_copy_that_a_fault_left_has_its_own_attempts() -> None:
    """A death between a confirmed retry and the acknowledgement leaves two messages, which both fail as often as they may."""
    promise = Promise(fates=PROMISE.fates, attempts=3, reruns=0, copies=1)
    tries = tuple(Seen(7, "b1", attempt) for attempt in (1, 2, 2, 3, 3))
    assert judge(evidence(letters=DEAD * 2, tried=tries), promise) == []
    more = (*tries, *tries[:2])
    assert [found.kind for found in judge(evidence(letters=DEAD * 2, tried=more), promise)] == [
        kinds.ATTEMPTS
    ]


def test_tries_beyond_the_attempts_of_what_was_sent_are_found() -> None:
    """One message that ended as one dead letter has no copies that explain more."""
    tries = tuple(Seen(7, "b1", attempt) for attempt in (1, 2, 2, 3))
    assert [found.kind for found in judge(evidence(tried=tries), PROMISE)] == [kinds.ATTEMPTS]
