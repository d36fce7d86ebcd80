"""Tests of the limits after which a worker process is recycled."""

from datetime import timedelta
from random import Random
from typing import Any
from unittest.mock import create_autospec

from oncemq.engine.supervision.child import Child
from oncemq.engine.supervision.recycling import Limits, Reason, RecycleRule
from oncemq.engine.supervision.replacing import Replacements, Step

MIB = 1 << 20


def test_the_first_limit_that_is_reached_decides() -> None:
    """Messages, memory or age; below all of them nothing happens."""
    limits = Limits(RecycleRule(1000, 100 * MIB, timedelta(hours=1)), Random(1))
    assert limits.reached(60, 10, 50 * MIB) is None
    assert limits.reached(60, 1000, 50 * MIB) is Reason.MESSAGES
    assert limits.reached(60, 10, 100 * MIB) is Reason.MEMORY
    assert limits.reached(3600, 10, 50 * MIB) is Reason.AGE


def test_processes_that_start_together_are_due_at_different_times() -> None:
    """Each draws its limits between four fifths of the rule's and all of it; memory is not drawn."""
    draw = Random(1)
    many = [Limits(RecycleRule(1000, 100 * MIB, timedelta(hours=1)), draw) for _ in range(20)]
    due = [next(n for n in range(1001) if limits.reached(60, n, 0) is Reason.MESSAGES) for limits in many]
    assert 800 <= min(due) < max(due) <= 1000
    assert len(set(due)) > 10
    assert all(limits.reached(60, 0, 100 * MIB - 1) is None for limits in many)


def test_a_limit_that_a_process_exceeds_from_its_start_is_not_kept() -> None:
    """Its successor would exceed it, too: an endless row of starts; the other limits hold."""
    limits = Limits(RecycleRule(1000, 100 * MIB), Random(1))
    assert not limits.begin(100 * MIB)
    assert limits.reached(60, 10, 500 * MIB) is None
    assert limits.reached(60, 1000, 500 * MIB) is Reason.MESSAGES


def test_a_young_process_is_not_recycled_for_its_memory() -> None:
    """What the first messages load must not make an endless row of starts either."""
    limits = Limits(RecycleRule(above_memory=100 * MIB), Random(1))
    assert limits.begin(50 * MIB)
    assert limits.reached(9, 10, 500 * MIB) is None
    assert limits.reached(10, 10, 500 * MIB) is Reason.MEMORY


def test_a_successor_takes_over_what_nothing_wants_replaced_any_more() -> None:
    """A reload that is given up while a successor starts leaves that one a place, and the supervisor alive."""
    old, new = (_child(index) for index in (0, 1))
    replacements = Replacements(None, 5.0)
    replacements.order([old])
    assert replacements.look({0: old}, lambda _: new) is Step.STARTED
    replacements.give_up()
    new.ready = 1.0
    assert replacements.look({0: old, 1: new}, lambda _: new) is Step.TOOK_OVER
    old.leave.assert_called_once_with()


def _child(index: int) -> Any:
    """Return a worker process that only this test's program knows of."""
    child = create_autospec(Child, instance=True)
    child.index, child.ready, child.leaving, child.limits = index, None, None, None
    child.killed, child.started, child.messages, child.memory = False, 0.0, 0, 0
    child.process.pid = 1
    return child
