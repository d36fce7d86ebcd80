"""Handlers that take many messages in one call."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict
from oncemq.engine.crash.flight_recorder import FLUSHING, NoRecorder
from oncemq.errors import Reject
from oncemq.handler.batch import Batch
from oncemq.testing.fake_clock import FakeClock
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, effects, give
from support.units import UnitBench, orders

Order = dict[str, Any]


def recording(calls: list[list[str]], act: Callable[[Order, Session], None] = lambda *_: None) -> Any:
    """Return a batch handler that gives all orders, and does `act` for each."""

    def handler(batch: Batch[dict[str, Any]], session: Session) -> None:
        calls.append([order["id"] for order in batch])
        for order in batch:
            give(session, order)
            act(order, session)

    return handler


class _Placing(Strategy):
    """Decides by what the key's earlier messages left."""

    traits = Traits(decides=True)


class _Reading(Strategy):
    """Sees before each message what earlier ones have written."""

    traits = Traits(decides=True, reads_between=True)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def decide(self, run: Run, item: Item) -> Verdict:
        """Count the effects."""
        self.seen.append(len(run.connection.execute(select(Effect)).all()))
        return PROCEED


def fail(order: Order, session: Session) -> None:
    """Fail for the order `bad`."""
    if order["id"] == "bad":
        raise ValueError("bad")


def test_one_call_for_many(engine: Engine) -> None:
    """Messages of different keys are handed over together, in order."""
    calls: list[list[str]] = []
    bench = UnitBench(engine, recording(calls), UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert calls == [["a", "b", "c"]]


def test_a_strategy_that_reads_between_messages_gets_one_in_a_call(engine: Engine) -> None:
    """It finds what the call before has written, in the same transaction."""
    calls: list[list[str]] = []
    reading = _Reading()
    bench = UnitBench(engine, recording(calls), UniqueKey, reading)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert (calls, reading.seen) == ([["a"], ["b"], ["c"]], [0, 1, 2])


def test_a_stretch_ends_before_the_second_message_of_a_key(engine: Engine) -> None:
    """A key's next message comes in the next call, where a strategy must have seen the first one."""
    calls: list[list[str]] = []
    bench = UnitBench(engine, recording(calls), UniqueKey, _Placing())
    bench.run(*orders("1", key="k"), *orders("a"), *orders("2", key="k"))
    assert calls == [["1", "a"], ["2"]]


@pytest.mark.parametrize("strategies", [(UniqueKey,), ()], ids=["unique_key", "none"])
def test_messages_of_one_key_share_a_call(engine: Engine, strategies: tuple[type[UniqueKey], ...]) -> None:
    """Where the identity alone decides, all of a unit are handed over at once, in arrival order."""
    calls: list[list[str]] = []
    names = [str(number) for number in range(50)]
    bench = UnitBench(engine, recording(calls), *strategies)
    assert bench.run(*orders(*names, key="k")) == ["applied"] * 50
    assert calls == [names]


def test_a_copy_joins_its_pending_first_one(engine: Engine) -> None:
    """It is a duplicate when the first one is applied, and ends no call."""
    calls: list[list[str]] = []
    bench = UnitBench(engine, recording(calls), UniqueKey)
    outcomes = bench.run(*orders("a"), *orders("b"), *orders("a"), *orders("c"), *orders("a"))
    assert outcomes == ["applied", "applied", "duplicate", "applied", "duplicate"]
    assert effects(engine) == ["a", "b", "c"]
    assert calls == [["a", "b", "c"]]


def test_a_copy_of_a_failed_message_is_no_duplicate(engine: Engine) -> None:
    """When the batch fails, both come again."""
    bench = UnitBench(engine, recording([], fail), UniqueKey)
    assert bench.run(*orders("bad"), *orders("bad")) == ["retry", "returned"]
    assert effects(engine) == []


def test_copies_never_share_a_call(engine: Engine) -> None:
    """A copy is a duplicate of the one before it, also where it carries another key."""
    calls: list[list[str]] = []
    bench = UnitBench(engine, recording(calls), UniqueKey)
    assert bench.run(*orders("a", key="k1"), *orders("a", key="k2")) == ["applied", "duplicate"]
    assert calls == [["a"]]


def test_a_failing_message_is_found_by_halving(engine: Engine) -> None:
    """Of many messages in one call the one that fails is charged, and the others take effect."""
    bench = UnitBench(engine, recording([], fail), UniqueKey)
    names = [*"abcdefgh", "bad", *"ijk"]
    outcomes = dict(zip(names, bench.run(*orders(*names)), strict=True))
    assert [name for name, outcome in outcomes.items() if outcome != "applied"] == ["bad"]
    assert sorted(effects(engine)) == sorted(set(names) - {"bad"})


def test_a_reject_is_found_by_halving(engine: Engine) -> None:
    """`raise Reject` from a call for many dead-letters the message that raises it when it is alone."""

    def refuse(order: Order, session: Session) -> None:
        if order["id"] == "bad":
            raise Reject("no")

    bench = UnitBench(engine, recording([], refuse), UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]


def test_a_swallowed_error_dooms_the_call(engine: Engine) -> None:
    """A database error that a batch handler hides is found, and charged to its message."""

    def swallow(order: Order, session: Session) -> None:
        if order["id"] == "bad":
            try:
                session.execute(TAKE_THE_TAKEN)
            except Exception:
                return

    bench = UnitBench(engine, recording([], swallow), UniqueKey)
    whole = engine.dialect.name == "postgresql"  # elsewhere an error undoes its statement only
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry" if whole else "applied", "applied"]
    assert sorted(effects(engine)) == (["a", "b"] if whole else ["a", "b", "bad"])


def test_successors_of_a_failed_message_wait(engine: Engine) -> None:
    """The order of a key holds through the halving."""
    bench = UnitBench(engine, recording([], fail), UniqueKey)
    first, second, third = orders("1", "bad", "3", key="k")
    assert bench.run(first, *orders("a"), second, *orders("b"), third) == [
        *("applied", "applied", "retry", "applied", "returned")
    ]


def test_the_time_budget_is_looked_at_between_calls(engine: Engine) -> None:
    """A unit of one key's messages, one call each, ends when its time is over."""
    clock = FakeClock()
    tick = recording([], lambda *_: clock.advance(timedelta(seconds=10)))
    bench = UnitBench(engine, tick, UniqueKey, _Placing(), clock=clock)
    assert bench.run(*orders("1", "2", "3", key="k"), seconds=15) == ["applied", "applied", "returned"]


def test_a_crash_in_a_call_for_many_blames_no_message(engine: Engine) -> None:
    """While a call for many runs, the flight recorder says that the culprit is unknown."""
    recorder = NoRecorder()
    seen: list[int] = []
    handler = recording([], lambda *_: seen.append(recorder.index[0]))
    bench = UnitBench(engine, handler, UniqueKey, recorder=recorder)
    bench.run(*orders("a", "b"))
    bench.run(*orders("c"))
    assert seen == [FLUSHING, FLUSHING, 1]


def test_a_late_call_is_charged_to_its_message(engine: Engine) -> None:
    """A call beyond the soft limit fails; alone with it, the message that takes long is charged."""

    def take_long(order: Order, session: Session) -> None:
        if order["id"] == "bad":
            bench.slot.overdue = bench.slot.started

    bench = UnitBench(engine, recording([], take_long), UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert bench.errors() == ["TimeLimitExceeded"]
