"""Whose an error is that no message's values explain: one message's, or everything's that uses the database."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import OperationalError
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from oncemq.errors import InfrastructureError, RedisUnavailable
from oncemq.ledger.records import history
from oncemq.retry.backoff import RetryPolicy
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.database.databases import database, engine
from support.effects import effects, give
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from support.units import UnitBench, build, orders

__all__ = ["database", "engine"]

Act = Callable[[Session], Any]

MISSING = text("SELECT missing FROM nowhere")


def failing_at(act: Act, *ids: str, first: bool = False) -> Callable[..., None]:
    """Return a handler that does `act` for the messages with these ids, before or after it gives."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if first and order["id"] in ids:
            act(session)
        give(session, order)
        if order["id"] in ids:
            act(session)

    return handler


def missing(session: Session) -> None:
    """Ask for what is not there."""
    session.execute(MISSING)


def mistyped(session: Session) -> None:
    """Hand a boolean where a number is wanted, as a careless body does; a missing function elsewhere."""
    name = session.connection().dialect.name
    session.execute(text("SELECT 1 + CAST('1' AS boolean)" if name == "postgresql" else "SELECT nothing(1)"))


def quoted(session: Session) -> None:
    """Send SQL that is made of data."""
    session.execute(text("SELECT 'O'Brien'"))


def unsendable(session: Session) -> None:
    """Hand a value that no driver can send."""
    session.execute(text("INSERT INTO names (name) VALUES (:name)"), {"name": {"not": "text"}})


@pytest.mark.parametrize("act", [missing, mistyped, quoted, unsendable])
def test_a_message_that_fails_alone_is_charged_and_its_neighbours_are_applied(
    engine: Engine, act: Act
) -> None:
    """In one unit: the others go on without it, which shows whose the error is."""
    bench = UnitBench(engine, failing_at(act, "bad"), UniqueKey)
    assert bench.run(*orders("a", "bad", "b", "c")) == ["applied", "retry", "applied", "applied"]
    assert sorted(effects(engine)) == ["a", "b", "c"]
    assert bench.result.trouble is None


@pytest.mark.parametrize("act", [missing, mistyped, quoted, unsendable])
def test_a_message_with_nothing_behind_it_is_charged(engine: Engine, act: Act) -> None:
    """Alone in its queue it still comes to its end, whatever the unit's limit."""
    bench = UnitBench(engine, failing_at(act, "bad"), UniqueKey)
    for _ in range(3):
        assert bench.run(*orders("bad")) == ["retry"]
        assert bench.result.trouble is None


def test_a_charged_message_keeps_its_true_error(engine: Engine) -> None:
    """What the driver said is in the dead letter, and not that something was infrastructure."""
    bench = UnitBench(engine, failing_at(missing, "bad"), UniqueKey)
    bench.run(*orders("bad"))
    [verdict] = bench.result.verdicts.values()
    assert "nowhere" in verdict.reason
    assert bench.errors() == ["ProgrammingError" if engine.dialect.name != "sqlite" else "OperationalError"]


def test_another_message_that_fails_by_the_same_error_shows_that_it_is_neithers(engine: Engine) -> None:
    """The consumer pauses and says so; what has failed waits, so that the next one tried is another one."""
    bench = UnitBench(engine, failing_at(missing, "1", "2", "3"), UniqueKey)
    assert bench.run(*orders("1")) == ["retry"]
    for other in ("2", "3", "2"):
        assert bench.run(*orders(other)) == ["deferred"]
        assert isinstance(bench.result.trouble, InfrastructureError)
        assert "nowhere" in str(bench.result.trouble)


def test_a_success_shows_that_each_of_them_is_to_blame(engine: Engine) -> None:
    """Many messages with the same mistake do not pause a consumer that others get through."""
    bench = UnitBench(engine, failing_at(missing, "1", "2", "3"), UniqueKey)
    bench.run(*orders("1"))
    waiting = bench.delivery(orders("2")[0])
    assert bench.execute([waiting]) == ["deferred"]
    assert bench.run(*orders("good")) == ["applied"]
    assert bench.execute([waiting]) == ["retry"]
    assert bench.run(*orders("3")) == ["retry"]
    assert bench.result.trouble is None


def test_where_the_handlers_table_is_missing_no_message_is_burnt(engine: Engine) -> None:
    """All fail by it: one has cost an attempt before that was known, the others none."""
    bench = UnitBench(engine, failing_at(missing, *"abcdef"), UniqueKey)
    outcomes = bench.run(*orders(*"abcdef"))
    assert outcomes.count("retry") <= 1
    assert set(outcomes) <= {"retry", "deferred", "returned"}
    assert bench.result.trouble is not None


def test_where_the_frameworks_own_tables_are_away_no_message_is_charged(engine: Engine) -> None:
    """The probe in a connection of its own decides at once."""
    bench = UnitBench(engine, failing_at(missing, "1"), UniqueKey)
    with engine.begin() as connection:
        history.TABLE.drop(connection)
    try:
        assert bench.run(*orders("1")) == ["returned"]
        assert isinstance(bench.result.trouble, InfrastructureError)
    finally:
        with engine.begin() as connection:
            history.TABLE.create(connection)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Engine]:
    """A database of the handler's own, in a file, without tables."""
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    yield other
    other.dispose()


def away(_: Session) -> None:
    """Ask a database that is not there."""
    with create_engine("postgresql+psycopg://absent@127.0.0.1:1/none").connect():
        pass


def redis_away(_: Session) -> None:
    """Have a lock of the handler's own fail."""
    raise RedisUnavailable("no answer")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("act", [away, redis_away])
def test_what_else_a_handler_uses_is_its_own(engine: Engine, act: Act, first: bool) -> None:
    """A server that is away is an ordinary failure, counted and logged at once."""
    bench = UnitBench(engine, failing_at(act, "bad", first=first), UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert bench.run(*orders("bad")) == ["retry"]
    assert not bench.lane.exclusive


def test_a_database_of_the_handlers_own_without_its_table_is_its_own(
    engine: Engine, elsewhere: Engine, tmp_path: Path
) -> None:
    """Through SQLAlchemy, and through the driver itself."""

    def act(_: Session) -> None:
        with elsewhere.connect() as connection:
            connection.execute(MISSING)

    def bare(_: Session) -> None:
        sqlite3.connect(tmp_path / "bare.db").execute("SELECT 1 FROM nowhere")

    for handler in (act, bare):
        bench = UnitBench(engine, failing_at(handler, "bad"), UniqueKey)
        assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
        assert bench.run(*orders("bad", "bad2")) == ["retry", "applied"]


def test_a_file_of_the_handlers_own_that_is_locked_is_its_own(engine: Engine, tmp_path: Path) -> None:
    """A driver's "database is locked" pauses the consumer only where it is the unit's database."""
    holder = sqlite3.connect(tmp_path / "own.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    def locked(_: Session) -> None:
        sqlite3.connect(tmp_path / "own.db", timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")

    for first in (False, True):
        bench = UnitBench(engine, failing_at(locked, "bad", first=first), UniqueKey)
        assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
        assert bench.run(*orders("bad")) == ["retry"]
        assert bench.result.trouble is None
    holder.close()


@pytest.mark.parametrize("code", [1205, 1213], ids=["lock time-out", "deadlock"])
@pytest.mark.parametrize("first", [False, True])
def test_a_lock_in_a_mysql_of_the_handlers_own_is_its_own(engine: Engine, code: int, first: bool) -> None:
    """Its driver's own error, which no SQLAlchemy has seen, delays no neighbour and makes no unit exclusive."""

    def locked(_: Session) -> None:
        raise OperationalError(code, "Lock wait timeout exceeded; try restarting transaction")

    bench = UnitBench(engine, failing_at(locked, "bad", first=first), UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert (bench.pauses, bench.lane.exclusive) == ([], False)


def test_a_deadlock_seen_through_the_drivers_cursor_is_the_units(engine: Engine) -> None:
    """A handler that uses the driver's own connection may have met a lock there: it is tried again in its process."""
    if engine.dialect.name not in {"mysql", "mariadb"}:
        return  # their drivers show whether the transaction has ended
    tries: list[str] = []

    def raw(session: Session) -> None:
        session.connection().connection.cursor().execute("SELECT 1")
        tries.append("")
        if len(tries) < 3:
            raise OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")

    bench = UnitBench(engine, failing_at(raw, "bad"), UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied"] * 3
    assert len(tries) == 3


def test_a_service_that_is_away_for_some_pauses_nothing(engine: Engine, fresh: str) -> None:
    """5 % of the traffic ask another database, which is away: each counts and is logged, the others are applied meanwhile."""
    heard, adapter = Heard(), ScriptedAdapter()
    bad = {str(number) for number in range(0, 200, 20)}
    plan = make_consumer(
        failing_at(away, *bad),
        [build(UniqueKey, engine, fresh)],
        name=fresh,
        retry=RetryPolicy(attempts=1),
    )
    with running(make_app(adapter, engine, plan), observers=[heard]):
        for number in range(200):
            adapter.deliver(f'{{"id": "{number}", "key": "{fresh}-{number}"}}'.encode())
        adapter.wait_until(lambda a: len(a.acknowledged) == 200 - len(bad) and len(a.dead) == len(bad))
    assert set(effects(engine)) == {str(number) for number in range(200)} - bad
    assert not heard.of("consumer_paused")
    assert len(heard.of("dead_lettered")) == len(bad)


def test_a_row_that_a_rival_changed_is_no_deadlock(engine: Engine) -> None:
    """The item runs again in its unit, which may find the row; then it is charged, and units stay side by side."""
    calls: list[str] = []

    def stale(_: Session) -> None:
        calls.append("")
        raise StaleDataError("UPDATE statement on table 'x' expected to update 1 row(s); 0 were matched.")

    bench = UnitBench(engine, failing_at(stale, "bad"), UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert bench.errors() == ["StaleDataError"]
    assert len(calls) in (1, 4)
    assert not bench.lane.exclusive
    assert bench.lanes == []
