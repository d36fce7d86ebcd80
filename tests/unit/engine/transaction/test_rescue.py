"""The rescue ladder on real databases: who runs again, who waits, who is charged."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, Culprits, Verdict, defer, reject
from oncemq.errors import Reject, Retry, StrategyBug
from oncemq.testing.fake_clock import FakeClock
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, effects, give
from support.units import UnitBench, orders


def plain(order: dict[str, Any], session: Session) -> None:
    """Give what is ordered; orders that say so fail after that."""
    give(session, order)
    if order.get("fail") == "raise":
        raise ValueError(order["id"])
    if order.get("fail") == "reject":
        raise Reject(order["id"])


class Failing(Strategy):
    """Fails in one hook, in the way it is told."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self, hook: str, error: Exception | None = None) -> None:
        self.hook = hook
        self.error = error or RuntimeError(f"a bug in {hook}")

    def _in(self, hook: str) -> None:
        if hook == self.hook:
            raise self.error

    def reserve(self, unit: Unit) -> None:
        """Perhaps fail."""
        self._in("reserve")

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Perhaps fail."""
        self._in("load")

    def decide(self, run: Run, item: Item) -> Verdict:
        """Perhaps fail, or say nothing."""
        self._in("decide")
        return None if self.hook == "forgotten return" else PROCEED  # type: ignore[return-value]

    def record(self, run: Run, item: Item) -> None:
        """Perhaps fail."""
        self._in("record")

    def save(self, run: Run) -> None:
        """Perhaps fail."""
        self._in("save")

    def confirm(self, run: Run) -> None:
        """Perhaps fail."""
        self._in("confirm")

    def committed(self, run: Run) -> None:
        """Perhaps fail."""
        self._in("committed")

    def release(self, unit: Unit) -> None:
        """Perhaps fail."""
        self._in("release")


@pytest.mark.parametrize(
    "hook", ["reserve", "load", "decide", "forgotten return", "record", "save", "confirm"]
)
def test_a_strategys_bug_charges_no_message(engine: Engine, hook: str) -> None:
    """A strategy that fails where it may not stops the consumer: nothing takes effect, nothing is charged."""
    bench = UnitBench(engine, plain, UniqueKey, Failing(hook))
    assert bench.run(*orders("a", "b")) == ["returned", "returned"]
    assert isinstance(bench.result.trouble, StrategyBug)
    assert effects(engine) == []


def test_culprits_without_an_item_are_a_bug(engine: Engine) -> None:
    """A strategy that rolls back without naming an item of the run does not start an endless loop."""
    bench = UnitBench(engine, plain, UniqueKey, Failing("save", Culprits({})))
    assert bench.run(*orders("a")) == ["returned"]
    assert isinstance(bench.result.trouble, StrategyBug)


@pytest.mark.parametrize("hook", ["committed", "release"])
def test_an_error_after_the_commit_changes_nothing(engine: Engine, hook: str) -> None:
    """What fails after the commit is told, and everything stays applied."""
    bench = UnitBench(engine, plain, UniqueKey, Failing(hook))
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]
    assert effects(engine) == ["a", "b"]
    assert {str(error) for error in bench.failures} == {f"a bug in {hook}"}


class Naming(Strategy):
    """Names the item `bad` a culprit, in the hook and with the verdict it is told."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self, hook: str, verdict: Verdict) -> None:
        self.hook = hook
        self.verdict = verdict

    def _in(self, hook: str, run: Run) -> None:
        bad = [item for item in run.items if item.payload["id"] == "bad" and item.verdict is PROCEED]
        if hook == self.hook and bad:
            raise Culprits(dict.fromkeys(bad, self.verdict))

    def save(self, run: Run) -> None:
        """Perhaps name it."""
        self._in("save", run)

    def confirm(self, run: Run) -> None:
        """Perhaps name it."""
        self._in("confirm", run)


@pytest.mark.parametrize("hook", ["save", "confirm"])
def test_a_named_culprit_gets_its_verdict_and_the_rest_commits(engine: Engine, hook: str) -> None:
    """Culprits raised by save or confirm take effect for the named item only."""
    bench = UnitBench(engine, plain, UniqueKey, Naming(hook, reject("no")))
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert effects(engine) == ["a", "b"]


def test_a_deferred_culprit_leaves_no_dedup_row(engine: Engine) -> None:
    """An item that a strategy defers while saving can run later."""
    naming = Naming("confirm", defer(timedelta(seconds=1)))
    bench = UnitBench(engine, plain, UniqueKey, naming)
    assert bench.run(*orders("bad")) == ["deferred"]
    naming.hook = ""
    assert bench.run(*orders("bad")) == ["applied"]


def test_successors_wait_behind_a_retry(engine: Engine) -> None:
    """After a failed message its key's later ones go back unstarted; the earlier one and other keys commit."""
    bench = UnitBench(engine, plain, UniqueKey)
    first, second, third = orders("1", "2", "3", key="k")
    outcomes = bench.run(first, {**second, "fail": "raise"}, *orders("x"), third)
    assert outcomes == ["applied", "retry", "applied", "returned"]
    assert effects(engine) == ["1", "x"]


def test_successors_wait_behind_a_retry_that_rolled_back_its_unit(engine: Engine) -> None:
    """The same where the failed message had sent statements, so that its unit runs again without it."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        session.flush()
        if "fail" in order:
            raise ValueError(order["id"])

    bench = UnitBench(engine, handler, UniqueKey)
    first, second, third = orders("1", "2", "3", key="k")
    outcomes = bench.run(first, {**second, "fail": "raise"}, *orders("x"), third)
    assert outcomes == ["applied", "retry", "applied", "returned"]
    assert effects(engine) == ["1", "x"]


def test_successors_go_on_after_a_reject(engine: Engine) -> None:
    """A message that is dead-lettered does not hold up its key."""
    bench = UnitBench(engine, plain, UniqueKey)
    first, second, third = orders("1", "2", "3", key="k")
    assert bench.run(first, {**second, "fail": "reject"}, third) == ["applied", "rejected", "applied"]
    assert effects(engine) == ["1", "3"]


def test_what_went_back_leaves_no_dedup_row(engine: Engine) -> None:
    """A message that was returned unstarted runs later, and is no duplicate of itself."""
    bench = UnitBench(engine, plain, UniqueKey)
    first, second = orders("1", "2", key="k")
    assert bench.run({**first, "fail": "raise"}, second) == ["retry", "returned"]
    assert bench.run(first, second) == ["applied", "applied"]
    assert effects(engine) == ["1", "2"]


class TooMany(Strategy):
    """Fails on the data of more than two items, and cannot say whose."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def save(self, run: Run) -> None:
        """Fail where it is too many."""
        if len(run.items) > 2:
            run.connection.execute(TAKE_THE_TAKEN)


def test_successors_wait_behind_a_retry_of_an_earlier_half(engine: Engine) -> None:
    """Where a unit had to be split, a message that failed in one part holds its key in the next one."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "1":
            raise Retry("again")
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey, TooMany())
    first, second = orders("1", "2", key="k")
    assert bench.run(first, *orders("a", "b"), second) == ["retry", "applied", "applied", "returned"]
    assert effects(engine) == ["a", "b"]


def test_copies_in_one_unit_are_one_effect(engine: Engine) -> None:
    """Of several copies in one unit the first runs and the others are duplicates."""
    bench = UnitBench(engine, plain, UniqueKey)
    assert bench.run(*orders("a"), *orders("a"), *orders("a")) == ["applied", "duplicate", "duplicate"]
    assert effects(engine) == ["a"]


def test_copies_of_a_failed_message_wait(engine: Engine) -> None:
    """A copy behind a failed first one goes back; it is not acknowledged as its duplicate."""
    bench = UnitBench(engine, plain, UniqueKey)
    bad = {**orders("a")[0], "fail": "raise"}
    assert bench.run(bad, bad) == ["retry", "returned"]


def test_the_time_budget_cuts_a_unit(engine: Engine) -> None:
    """When the unit's time is over, what was not started goes back and what ran commits."""
    clock = FakeClock()

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        clock.advance(timedelta(seconds=10))

    bench = UnitBench(engine, handler, UniqueKey, clock=clock)
    assert bench.run(*orders("a", "b", "c", "d"), seconds=15) == [
        "applied",
        "applied",
        "returned",
        "returned",
    ]
    assert bench.run(*orders("c", "d")) == ["applied", "applied"]
    assert effects(engine) == ["a", "b", "c", "d"]


def test_a_unit_always_gets_somewhere(engine: Engine) -> None:
    """However short its time, a unit runs at least one message."""
    clock = FakeClock()

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        clock.advance(timedelta(seconds=10))

    bench = UnitBench(engine, handler, UniqueKey, clock=clock)
    assert bench.run(*orders("a", "b"), seconds=0) == ["applied", "returned"]


def test_a_second_run_has_time_of_its_own(engine: Engine) -> None:
    """What a rolled-back run took is not taken from the next one: the neighbours of poison commit together."""
    clock = FakeClock()

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        clock.advance(timedelta(seconds=10))
        if order["id"] == "bad":
            raise ValueError("at the end")

    bench = UnitBench(engine, handler, UniqueKey, clock=clock)
    assert bench.run(*orders("a", "b", "c", "bad"), seconds=45) == ["applied", "applied", "applied", "retry"]
    assert bench.result.committed == 1
