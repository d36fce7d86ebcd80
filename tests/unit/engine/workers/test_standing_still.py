"""Someone is blocked in the middle of a transaction: what he holds must wait, and nothing else may."""

import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from oncemq.engine.consumer.contention import Contention
from oncemq.engine.workers import failure_isolation as rescue
from oncemq.errors import InfrastructureError
from oncemq.ledger.records.exclusive_units import enter_exclusive, others_exclusive
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.database.databases import database, engine
from support.effects import effects, give
from support.units import UnitBench, orders

__all__ = ["database", "engine"]

HELD = [f"held{number}" for number in range(12)]
FREE = [f"free{number}" for number in range(12)]
ALL = [*HELD, *FREE]
ASK = {"postgresql": "SHOW lock_timeout", "mysql": "SELECT @@SESSION.innodb_lock_wait_timeout"}
WAIT = {
    "postgresql": "SET LOCAL lock_timeout = '300ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


ROWS = pytest.mark.parametrize(
    "database",
    [pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")],
    indirect=True,
    scope="session",
)
"""Databases that lock rows; in SQLite one writer locks everything."""
POSTGRESQL = pytest.mark.parametrize(
    "database", [pytest.param("postgresql", marks=pytest.mark.server)], indirect=True, scope="session"
)


@pytest.fixture(autouse=True)
def short_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lock time-out takes part of a second instead of ten, and is taken for one."""
    monkeypatch.setattr(rescue, "LONGEST_TRYING", 0.2)

    def begin(connection: Connection) -> None:
        if engine.dialect.name in WAIT:
            connection.exec_driver_sql(WAIT[engine.dialect.name])

    event.listen(engine, "begin", begin)
    yield
    event.remove(engine, "begin", begin)
    engine.dispose()  # on MariaDB the setting belongs to the session


class Sleeper:
    """A member that is blocked in its handler, with everything of its unit in its transaction."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.stands, self._wake = threading.Event(), threading.Event()
        self._bench = UnitBench(engine, self._handler, UniqueKey, name=name)
        self._bench.savepoint_every, self._bench.guarded = None, False
        self._thread = threading.Thread(target=self._bench.run, args=orders(*HELD))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.stands.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.wake()

    def wake(self) -> None:
        """Let it go on, and lose what it did."""
        self._wake.set()
        self._thread.join(20)

    def _handler(self, order: dict[str, Any], session: Session) -> None:
        self.stands.set()
        assert self._wake.wait(60)
        raise InfrastructureError("its connection is lost")


def handler(order: dict[str, Any], session: Session) -> None:
    """Have the effect."""
    give(session, order)


@ROWS
def test_messages_without_a_held_row_take_effect(engine: Engine) -> None:
    """Of one unit only those are deferred that someone else has in hand; no one is charged, nothing is given up."""
    bench = UnitBench(engine, handler, UniqueKey)
    with Sleeper(engine, bench.name) as sleeper:
        outcomes = dict(zip(ALL, bench.run(*orders(*ALL)), strict=True))
        sleeper.wake()
    assert {outcomes[identity] for identity in HELD} == {"deferred"}
    assert {outcomes[identity] for identity in FREE} == {"applied"}
    assert bench.result.trouble is None
    assert sorted(effects(engine)) == sorted(FREE)


@ROWS
def test_all_of_it_takes_effect_when_it_wakes(engine: Engine) -> None:
    """What was deferred is applied as soon as no one holds it any more."""
    bench = UnitBench(engine, handler, UniqueKey)
    deliveries = [bench.delivery(order) for order in orders(*ALL)]
    with Sleeper(engine, bench.name):
        bench.execute(deliveries)
    assert set(bench.execute(deliveries)) <= {"applied", "duplicate"}
    assert sorted(effects(engine)) == sorted(ALL)


@ROWS
def test_later_units_do_not_wait(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """For half a minute after a wait without success units wait for no lock; then they do so in turn again."""
    now = [0.0]
    lane = Contention(lambda: now[0])
    monkeypatch.setattr(rescue, "LONGEST_TRYING", 0.0)
    bench = UnitBench(engine, handler, UniqueKey, lane=lane)
    with Sleeper(engine, bench.name):
        before = lane.lock_nowait
        bench.run(*orders(*HELD[:2]))
        during = lane.lock_nowait
        now[0] = 30.0
    assert [before, during, lane.lock_nowait] == [False, True, False]


@ROWS
def test_a_message_met_locked_in_a_hurry_is_not_charged_soon(engine: Engine) -> None:
    """Many short looks in half a minute are no three lock time-outs; after it the next one counts."""
    now = [0.0]
    lane = Contention(lambda: now[0])
    lane.waited_without_success()
    bench = UnitBench(engine, handler, UniqueKey, lane=lane)
    held = bench.delivery(orders(HELD[0])[0])
    outcomes = []
    with Sleeper(engine, bench.name):
        for other in FREE[:6]:
            outcomes += bench.execute([held, bench.delivery(orders(other)[0])])
        now[0] = 29.9
        lane.waited_without_success()
        outcomes += bench.execute([held])
        now[0] = 30.0
        outcomes += bench.execute([held])
    assert outcomes == ["deferred", "applied"] * 6 + ["deferred", "retry"]


@ROWS
def test_a_unit_of_which_all_is_held_does_not_pause_the_consumer(engine: Engine) -> None:
    """Each message waits by itself; that is said once, and what comes behind them has its turn."""
    bench = UnitBench(engine, handler, UniqueKey)
    with Sleeper(engine, bench.name):
        outcomes = bench.run(*orders(*HELD))
    assert set(outcomes) == {"deferred"}
    assert bench.result.trouble is None
    assert bench.told


@ROWS
def test_a_blocked_exclusive_unit_keeps_out_no_other(engine: Engine) -> None:
    """Anyone who has waited without success goes on without being the only one; that is a matter of speed alone."""
    lane = Contention()
    bench = UnitBench(engine, handler, UniqueKey, lane=lane)
    lane.deadlocked()
    with engine.connect() as sleeper:
        enter_exclusive(sleeper, bench.plan.scope)
        outcomes = bench.run(*orders(*FREE))
        sleeper.rollback()
    assert set(outcomes) == {"applied"}


@POSTGRESQL
def test_a_process_that_waited_long_follows_one_whose_units_are_exclusive(engine: Engine) -> None:
    """Otherwise the exclusive units would deadlock with those of a process that was never the victim."""
    lane = Contention()
    bench = UnitBench(engine, handler, UniqueKey, lane=lane)
    lane.ran(1.0)
    with engine.connect() as other:
        enter_exclusive(other, bench.plan.scope)
        ended = threading.Timer(0.1, other.rollback)
        ended.start()
        outcomes = bench.run(*orders(*FREE))
        ended.join()
    assert set(outcomes) == {"applied"}
    assert lane.exclusive


@POSTGRESQL
def test_a_slow_unit_is_followed_by_a_look(engine: Engine) -> None:
    """The unit may have waited for another process; the next one looks whether that one's units are exclusive."""
    ahead = [0.0]
    lane = Contention(lambda: time.monotonic() + ahead[0])

    def slow(order: dict[str, Any], session: Session) -> None:
        ahead[0] += 1.0
        give(session, order)

    bench = UnitBench(engine, slow, UniqueKey, lane=lane)
    bench.run(*orders("first"))
    with engine.connect() as other:
        enter_exclusive(other, bench.plan.scope)
        ended = threading.Timer(0.1, other.rollback)
        ended.start()
        bench.run(*orders("second"))
        ended.join()
    assert lane.exclusive


@POSTGRESQL
def test_a_process_that_waited_long_finds_no_exclusive_units(engine: Engine) -> None:
    """Slow units alone, also of several processes, make none exclusive."""
    lane = Contention()
    bench = UnitBench(engine, handler, UniqueKey, lane=lane)
    with engine.begin() as other:
        assert not others_exclusive(other, bench.plan.scope)
        lane.ran(1.0)
        assert set(bench.run(*orders(*FREE))) == {"applied"}
    assert not lane.exclusive


@ROWS
def test_waiting_is_as_usual_after_a_hurry(engine: Engine) -> None:
    """What was set for a hurried run does not stay with its connection."""
    asked: list[Any] = []

    def asking(order: dict[str, Any], session: Session) -> None:
        asked.append(str(session.execute(text(ASK[engine.dialect.name])).scalar_one()))

    lane = Contention(lambda: 0.0)
    bench = UnitBench(engine, asking, UniqueKey, lane=lane)
    bench.run(*orders("a"))
    lane.waited_without_success()
    bench.run(*orders("b"))
    bench.lane._hurried_until = 0.0
    bench.run(*orders("c"))
    usual, lock_nowait = ("300ms", "2ms") if engine.dialect.name == "postgresql" else ("1", "0")
    assert asked == [usual, lock_nowait, usual]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True, scope="session")
def test_a_database_where_one_writes_at_a_time_is_told_at_once(engine: Engine) -> None:
    """Where someone else's transaction keeps out everyone, no halves are tried: the unit is given back."""

    def soon(connection: Any, *_: object) -> None:
        connection.execute("PRAGMA busy_timeout = 1")

    engine.dispose()
    event.listen(engine, "connect", soon)
    bench = UnitBench(engine, handler, UniqueKey)
    with engine.connect() as sleeper:
        sleeper.execute(text("UPDATE shared SET points = 1"))
        outcomes = bench.run(*orders(*FREE))
    event.remove(engine, "connect", soon)
    engine.dispose()
    assert set(outcomes) == {"returned"}
    assert isinstance(bench.result.trouble, InfrastructureError)
