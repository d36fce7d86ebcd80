"""A message that has finally failed is undone once, or applied by a copy, and never both."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.common.clock import SystemClock
from oncemq.contracts.final_failure import FinalFailure
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import reject
from oncemq.engine.base.final_failures import FinalGuard, FinalRecord
from oncemq.engine.consumer.consumer import Consumer
from oncemq.engine.consumer.receiver import Intake
from oncemq.engine.crash.flight_recorder import OnDeadRecorder, read_crash
from oncemq.engine.settlement.on_dead import APPLIED_MEANWHILE, Dead, Ended, Ending, OnDead
from oncemq.engine.workers.failure_isolation import UnitResult
from oncemq.errors import InfrastructureError, Reject
from oncemq.ledger.records import history, suspects
from oncemq.message.envelope import Delivery
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.benches.settler import Desk, desk
from support.database.databases import database, engine
from support.effects import effects, give
from support.units import UnitBench, orders

__all__ = ["database", "desk", "engine"]

FAILURE = FinalFailure("rejected", "Reject: no", 1)


class Pair:
    """One consumer: its handler, and its function for what has failed.

    Args:
        engine: the database.
        inside: called by the function, inside its transaction.
        handled: called by the handler, inside its transaction.
        deaths: how often processes died, by name.
        give_up: whether the process ends.
        writes: the function has an effect.
    """

    def __init__(
        self,
        engine: Engine,
        inside: Callable[[], object] = lambda: None,
        handled: Callable[[], object] = lambda: None,
        deaths: Mapping[str, int] | None = None,
        *,
        give_up: bool = False,
        writes: bool = True,
    ) -> None:
        def handler(order: dict[str, Any], session: Session) -> None:
            give(session, order)
            session.flush()
            handled()

        def undo(order: dict[str, Any], session: Session) -> None:
            if writes:
                give(session, {**order, "id": f"undo-{order['id']}"})
                session.flush()
            inside()

        self.living = UnitBench(engine, handler, UniqueKey, FinalGuard())
        self.dying = UnitBench(engine, undo, FinalRecord(SystemClock()), name=self.living.name)
        self.trouble: InfrastructureError | None = None
        self.told: list[tuple[str, str]] = []
        self.on_dead = OnDead(
            self.living.plan.scope,
            self._execute,
            lambda _: 0,
            SystemClock(),
            lambda: deaths or {},
            lambda: give_up,
            lambda _: None,
            lambda doing, error: self.told.append((doing, str(error))),
        )

    def _execute(self, shard: int, unit: Unit) -> UnitResult:
        del shard
        if self.trouble is not None:
            result, self.trouble = UnitResult(trouble=self.trouble), None
            return result
        return self.dying.runner.execute(unit)

    def fail(self, name: str = "a") -> Ended:
        """Let a message fail for good."""
        return self.on_dead.run(self.living.delivery(orders(name)[0]), FAILURE)


class LeavesAll:
    """Stands for a function whose database is away while the process ends."""

    def before(self, _dead: object, *_words: object) -> tuple[list[Dead], list[Delivery]]:
        """Leave all."""
        return [], []


class AllApplied:
    """Stands for a function that finds every message applied by a copy."""

    def before(self, dead: list[Dead], *_words: object) -> tuple[list[Dead], list[Delivery]]:
        """Return all of them as applied."""
        return [], [letter.delivery for letter, _, _ in dead]


def test_it_runs_once_however_often_the_message_fails(engine: Engine) -> None:
    """A second end of the same message finds that the function has taken effect."""
    pair = Pair(engine)
    assert [pair.fail().ending for _ in range(3)] == [Ending.DONE] * 3
    assert effects(engine) == ["undo-a"]


def test_a_message_that_has_failed_for_good_is_never_applied(engine: Engine) -> None:
    """Its copies are dead letters with its code and reason; neighbours are applied."""
    pair = Pair(engine)
    pair.fail()
    assert pair.living.run(*orders("b", "a", "c")) == ["applied", "rejected", "applied"]
    (verdict,) = (each for each in pair.living.result.verdicts.values() if not each.final)
    assert (verdict.code, verdict.reason) == (FAILURE.code, FAILURE.error)
    assert sorted(effects(engine)) == ["b", "c", "undo-a"]


def test_a_message_whose_copy_was_applied_has_not_failed(engine: Engine) -> None:
    """The function does not run."""
    pair = Pair(engine)
    pair.living.run(*orders("a"))
    assert pair.fail().ending is Ending.APPLIED
    assert effects(engine) == ["a"]


def test_the_history_has_no_duplicate_of_it(engine: Engine) -> None:
    """The function's second look at a message is no copy of it."""
    pair = Pair(engine)
    pair.fail()
    pair.fail()
    with engine.connect() as connection:
        mine = history.TABLE.c.consumer == pair.living.plan.scope
        assert connection.execute(history.TABLE.select().where(mine)).all() == []


def test_a_copy_that_arrives_while_the_function_runs_waits_for_it(engine: Engine) -> None:
    """It is a dead letter, not a duplicate in silence, and its handler does not run."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert go_on.wait(60)

    pair = Pair(engine, inside=hold)
    with ThreadPoolExecutor(2) as threads:
        ended = threads.submit(pair.fail)
        assert inside.wait(60)
        copy = threads.submit(pair.living.run, *orders("a"))
        go_on.set()
        assert copy.result(60) == ["rejected"]
        assert ended.result(60).ending is Ending.DONE
    assert effects(engine) == ["undo-a"]


def test_the_function_waits_for_a_copy_whose_handler_is_running(engine: Engine) -> None:
    """That copy is applied, so the message has not failed."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert go_on.wait(60)

    pair = Pair(engine, handled=hold)
    with ThreadPoolExecutor(2) as threads:
        copy = threads.submit(pair.living.run, *orders("a"))
        assert inside.wait(60)
        ended = threads.submit(pair.fail)
        go_on.set()
        assert copy.result(60) == ["applied"]
        assert ended.result(60).ending is Ending.APPLIED
    assert effects(engine) == ["a"]


@pytest.mark.parametrize("writes", [True, False], ids=["after-writing", "before"])
def test_its_failure_leaves_nothing_behind(engine: Engine, *, writes: bool) -> None:
    """Neither an effect nor a record, so a copy is applied."""

    def fail() -> None:
        raise Reject("closed")

    pair = Pair(engine, inside=fail, writes=writes)
    assert pair.fail() == Ended(Ending.FAILED, "closed")
    assert pair.told == [("a consumer's on_dead function", "closed")]
    assert effects(engine) == []
    assert pair.living.run(*orders("a")) == ["applied"]


def test_an_unavailable_database_is_waited_for(engine: Engine) -> None:
    """No message is charged."""
    pair = Pair(engine)
    pair.trouble = InfrastructureError("the database is away")
    assert pair.fail().ending is Ending.DONE
    assert effects(engine) == ["undo-a"]


def test_a_process_that_ends_leaves_the_message_unsettled(engine: Engine) -> None:
    """The broker delivers it again to another one."""
    pair = Pair(engine, give_up=True)
    pair.trouble = InfrastructureError("the database is away")
    assert pair.fail().ending is Ending.LEFT
    assert effects(engine) == []


def test_a_function_that_ends_its_process_is_given_up(engine: Engine) -> None:
    """After two deaths its message is a dead letter without it, instead of ending every next process."""
    identity = "a"
    pair = Pair(engine, deaths={suspects.on_dead(identity): 2})
    assert pair.fail() == Ended(Ending.FAILED, "its process ended 2 times while it ran")
    assert effects(engine) == []


def test_deaths_of_the_function_are_forgotten_with_the_message(engine: Engine) -> None:
    """Replayed when the function is mended, it runs."""
    bench = Pair(engine).living
    intake: Any = Intake.__new__(Intake)
    intake.suspects = {suspects.on_dead("a"): 2, "b": 1}
    forgotten: list[str] = []
    consumer: Any = SimpleNamespace(intake=intake, _forget=forgotten.append, observers=None)
    Consumer.ended(consumer, bench.delivery(orders("a")[0]))
    assert intake.suspects == {"b": 1}
    assert forgotten == ["a"]


def test_a_message_that_stays_unsettled_is_no_letter(desk: Desk) -> None:
    """The process ends while the database is away: nothing is sent."""
    desk.settler._on_dead = LeavesAll()  # type: ignore[assignment]
    desk.settle((desk.delivery(), reject("no")))
    assert desk.adapter.summary() == "0 acknowledged, 0 retried, 0 dead, 0 given back, 0 refused"
    assert desk.passed == ["on-dead-done"]


def test_a_message_whose_copy_was_applied_is_acknowledged(desk: Desk) -> None:
    """It is no dead letter, and the history says why."""
    desk.settler._on_dead = AllApplied()  # type: ignore[assignment]
    delivery = desk.delivery()
    desk.settle((delivery, reject("no")))
    assert desk.adapter.summary() == "1 acknowledged, 0 retried, 0 dead, 0 given back, 0 refused"
    assert [(code, why) for _, code, why in desk.tried] == [("duplicate", APPLIED_MEANWHILE)]


def test_a_death_while_it_runs_is_not_charged_to_the_message(engine: Engine, tmp_path: Path) -> None:
    """The flight recorder has the function's own name for it, by which deaths are counted."""
    pair = Pair(engine)
    envelope = pair.living.delivery(orders("a")[0]).envelope
    assert envelope is not None
    recorder = OnDeadRecorder(tmp_path / "record")
    recorder.begin([envelope])
    recorder.index[0] = 1
    crash = read_crash(tmp_path / "record", "shop.points")
    recorder.close()
    assert crash is not None
    assert crash.suspects == ((envelope.key, suspects.on_dead(envelope.identity)),)
