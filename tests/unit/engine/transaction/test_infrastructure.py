"""The database fails, and no message is to blame – until one of them is (rule 7)."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from oncemq.engine.consumer.contention import Contention
from oncemq.errors import InfrastructureError
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Shared, effects, give, points
from support.units import UnitBench, orders

KILL_OURSELVES = {
    "postgresql": "SELECT pg_terminate_backend(pg_backend_pid())",
    "mysql": "KILL CONNECTION_ID()",
}


def find_it_locked(session: Session) -> None:
    """Ask for a row that someone has locked, without waiting."""
    if session.connection().dialect.name == "sqlite":
        raise InfrastructureError("locked")  # there one writer locks everything
    session.scalars(select(Shared).where(Shared.id == 1).with_for_update(nowait=True)).one()


@pytest.fixture
def locker(engine: Engine) -> Any:
    """A transaction that holds the first shared row."""
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            connection.execute(select(Shared).where(Shared.id == 1).with_for_update())
        yield connection
        connection.rollback()


def handler_meeting(trouble: Callable[[Session], Any]) -> Callable[..., None]:
    """Return a handler that meets `trouble` at the order `stuck`, after giving."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "stuck":
            trouble(session)

    return handler


def test_a_lock_time_out_charges_no_message(engine: Engine, locker: object) -> None:
    """The message that meets a lock is deferred; its neighbours take effect."""
    bench = UnitBench(engine, handler_meeting(find_it_locked), UniqueKey)
    assert bench.run(*orders("a", "stuck", "b")) == ["applied", "deferred", "applied"]
    assert sorted(effects(engine)) == ["a", "b"]


def test_the_third_lock_time_out_counts_while_others_succeed(engine: Engine, locker: object) -> None:
    """When other units succeed meanwhile, a message's third failure costs an attempt."""
    bench = UnitBench(engine, handler_meeting(find_it_locked), UniqueKey)
    stuck = bench.delivery(orders("stuck")[0])
    outcomes = [bench.execute([bench.delivery(other), stuck])[1] for other in orders("a", "b", "c")]
    assert outcomes == ["deferred", "deferred", "retry"]


def test_successes_of_another_worker_count(engine: Engine, locker: object) -> None:
    """The others that succeed may be in the hands of a sibling."""
    bench = UnitBench(engine, handler_meeting(find_it_locked), UniqueKey)
    stuck = bench.delivery(orders("stuck")[0])
    outcomes = []
    for _ in range(3):
        outcomes += bench.execute([stuck])
        bench.lane.succeeded()  # a sibling's unit
    assert outcomes == ["deferred", "deferred", "retry"]


def test_while_nothing_succeeds_no_message_is_charged(engine: Engine, locker: object) -> None:
    """As long as nothing commits at all, the database is at fault, however often a message fails."""
    bench = UnitBench(engine, handler_meeting(find_it_locked), UniqueKey)
    stuck = bench.delivery(orders("stuck")[0])
    assert [bench.execute([stuck])[0] for _ in range(6)] == ["deferred"] * 6


def test_a_lock_on_all_messages_is_the_databases_trouble(engine: Engine, locker: object) -> None:
    """When one message after the other fails alone, the unit is given back and the consumer must pause."""

    def handler(order: dict[str, Any], session: Session) -> None:
        find_it_locked(session)

    bench = UnitBench(engine, handler, UniqueKey)
    outcomes = bench.run(*orders(*"abcdef"))
    assert set(outcomes) <= {"deferred", "returned"}
    assert isinstance(bench.result.trouble, InfrastructureError)


def test_a_swallowed_lock_time_out_leaves_no_half_effect(engine: Engine, locker: object) -> None:
    """A handler that hides a lock time-out, which undoes one statement only on MariaDB, does not commit the rest."""

    def trouble(session: Session) -> None:
        try:
            find_it_locked(session)
        except (OperationalError, InfrastructureError):
            if engine.dialect.name == "sqlite":
                raise

    bench = UnitBench(engine, handler_meeting(trouble), UniqueKey)
    assert bench.run(*orders("a", "stuck", "b")) == ["applied", "deferred", "applied"]
    assert sorted(effects(engine)) == ["a", "b"]


def test_a_message_that_kills_its_connection_is_found(engine: Engine) -> None:
    """While the database answers, a lost connection does not hold up the neighbours of the one that loses it."""

    def trouble(session: Session) -> None:
        kill = KILL_OURSELVES.get(engine.dialect.name)
        if kill is None:
            raise InfrastructureError("no server whose connection could be lost")
        session.execute(text(kill))

    bench = UnitBench(engine, handler_meeting(trouble), UniqueKey)
    stuck = bench.delivery(orders("stuck")[0])
    outcomes = [bench.execute([bench.delivery(other), stuck]) for other in orders("a", "b", "c")]
    # Where a connection was really lost, the second time counts; a declared outage counts as a lock does.
    second = "deferred" if engine.dialect.name == "sqlite" else "retry"
    assert outcomes[:2] == [["applied", "deferred"], ["applied", second]]
    assert outcomes[2] == ["applied", "retry"]


def test_a_lost_answer_to_commit_is_asked_again_through_the_chain(engine: Engine) -> None:
    """When no one knows whether a commit happened, the run is tried again, and the dedup rows tell."""
    lost: list[bool] = []

    def lose(connection: Connection) -> None:
        if not lost:
            lost.append(True)
            driver: Any = connection.connection.driver_connection
            driver.commit()
            raise OperationalError("COMMIT", {}, Exception("connection lost"), connection_invalidated=True)

    event.listen(engine, "commit", lose)
    try:
        bench = UnitBench(engine, handler_meeting(lambda session: None), UniqueKey)
        outcomes = bench.run(*orders("a", "b"))
    finally:
        event.remove(engine, "commit", lose)
    assert outcomes == ["duplicate", "duplicate"]
    assert effects(engine) == ["a", "b"]


def test_deadlocked_units_run_one_at_a_time_and_find_back(engine: Engine) -> None:
    """Two workers that deadlock both get through, exclusively from then on, and side by side again later."""
    barrier = threading.Barrier(2, timeout=20)
    came: set[str] = set()

    def handler(order: dict[str, Any], session: Session) -> None:
        for place, number in enumerate(order["rows"]):
            session.execute(update(Shared).where(Shared.id == number).values(points=Shared.points + 1))
            if place == 0 and order.get("meet") and order["id"] not in came:
                came.add(order["id"])
                barrier.wait()
        give(session, order)

    ahead = [0.0]
    shared = Contention(lambda: time.monotonic() + ahead[0])
    first, second = (UnitBench(engine, handler, UniqueKey, lane=shared) for _ in range(2))
    meet = engine.dialect.name != "sqlite"  # one writer at a time cannot deadlock
    meeting = [
        threading.Thread(
            target=bench.run, args=({"id": f"m{rows}", "key": f"m{rows}", "rows": rows, "meet": meet},)
        )
        for bench, rows in ((first, [1, 2]), (second, [2, 1]))
    ]
    for thread in meeting:
        thread.start()
    for thread in meeting:
        thread.join(30)
    met = [*first.lanes, *second.lanes]
    if not meet:
        shared.deadlocked()
    exclusive = shared.exclusive
    ahead[0] = 600.0  # a stretch also lasts many times as long as the deadlock took
    for number in range(60):
        first.run({"id": str(number), "key": str(number), "rows": [1]})
    assert met == ([True] if meet else [])
    assert exclusive
    assert not shared.exclusive
    assert first.lanes[-1] is False
    assert points(engine, 2) == 2
    assert points(engine, 1) == 62
