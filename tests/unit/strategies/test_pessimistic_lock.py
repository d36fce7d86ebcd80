"""`pessimistic_lock`, on the user's own table: by row and by mapped class."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.orm import Session

from oncemq.config.build.consumer_rules import check_chain
from oncemq.contracts.checks import Effects, UnitKind
from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.handler.binding import bind
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Message
from oncemq.testing.strategy_suite.bench import Bench
from oncemq_strategies.pessimistic_lock import PessimisticLock
from support.database import rides
from support.database.rides import TABLE, Ride

DEADLINE = 30.0
MakeBench = Callable[..., Bench]
SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")]
BY_TABLE = {"table": "rides", "key": "ride_id"}
BY_MODEL = {"model": Ride}


def event(ride: Any, number: int = 1) -> Message:
    """Return a message about a ride."""
    return Message("rides", json.dumps({"id": ride, "n": number}).encode())


def with_handler(bench: Bench, function: Callable[..., Any]) -> Bench:
    """Let a bench call a handler by its annotations, as an app does."""
    provided = {kind: give for strategy in bench.strategies for kind, give in strategy.provides().items()}
    bound = bind(function, name="tests:handler", provided=provided, effects=Effects.DATABASE)
    bench._call = bound.call  # type: ignore[method-assign]
    bench._execute = bench._make_runner(lambda _point: None)
    return bench


@pytest.fixture
def table(database_url: str) -> None:
    """Create the table with two rides."""
    rides.create(database_url, {"ride_id": 1, "status": "open"}, {"ride_id": 2, "status": "open"})


@contextmanager
def held(url: str, ride: int) -> Iterator[None]:
    """Hold a ride's row in another transaction."""
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(select(TABLE).where(TABLE.c.ride_id == ride).with_for_update())
        yield
    engine.dispose()


def test_the_handler_is_handed_the_mapped_object(make_bench: MakeBench, table: None) -> None:
    """Every message of the unit works on the same object, so no change is lost."""

    def handler(body: dict[str, Any], ride: Ride, session: Session) -> None:
        assert session.get(Ride, body["id"]) is ride
        ride.points += 10

    bench = with_handler(make_bench("pessimistic_lock", BY_MODEL), handler)
    assert bench.deliver(event(1), event(2), event(1)) == [Outcome.PROCEED] * 3
    assert rides.of(bench.engine, "points") == {1: 20, 2: 10}


def test_the_handler_is_handed_the_row(make_bench: MakeBench, table: None) -> None:
    """With a table it asks for a Row, whose columns it reads by name."""

    def handler(body: dict[str, Any], ride: Row[Any], session: Session) -> None:
        session.execute(update(TABLE).where(TABLE.c.ride_id == ride.ride_id).values(points=ride.points + 10))

    bench = with_handler(make_bench("pessimistic_lock", BY_TABLE), handler)
    assert bench.deliver(event(1), event(2), event(1)) == [Outcome.PROCEED] * 3
    assert rides.of(bench.engine, "points") == {1: 20, 2: 10}


@pytest.mark.parametrize("options", [BY_TABLE, BY_MODEL], ids=["table", "model"])
def test_what_a_neighbour_changed_is_seen(make_bench: MakeBench, table: None, options: Any) -> None:
    """The lock is held since the unit began; a neighbour's SQL since then must not be overwritten."""

    def by_row(body: dict[str, Any], ride: Row[Any], session: Session) -> None:
        change(body, ride, session)

    def by_model(body: dict[str, Any], ride: Ride, session: Session) -> None:
        change(body, ride, session)

    def change(body: dict[str, Any], ride: Any, session: Session) -> None:
        every_row = update(TABLE).values(points=TABLE.c.points + 1)
        session.connection().execute(every_row)
        alone = update(TABLE).where(TABLE.c.ride_id == body["id"])
        session.connection().execute(alone.values(points=ride.points + 101))

    bench = make_bench("pessimistic_lock", options)
    with_handler(bench, by_model if options is BY_MODEL else by_row)
    assert bench.deliver(event(1), event(2), event(1)) == [Outcome.PROCEED] * 3
    assert rides.of(bench.engine, "points") == {1: 203, 2: 103}


@pytest.mark.parametrize("options", [BY_TABLE, BY_MODEL], ids=["table", "model"])
def test_a_missing_row_is_handed_over_as_none(make_bench: MakeBench, table: None, options: Any) -> None:
    """Its handler may insert it; the next message of the unit is handed what was inserted."""
    seen = []

    def by_row(body: dict[str, Any], ride: Row[Any] | None, session: Session) -> None:
        change(body, ride, session)

    def by_model(body: dict[str, Any], ride: Ride | None, session: Session) -> None:
        change(body, ride, session)

    def change(body: dict[str, Any], ride: Any, session: Session) -> None:
        seen.append(ride and ride.points)
        if ride is None:
            session.add(Ride(ride_id=body["id"], points=7))

    bench = make_bench("pessimistic_lock", options)
    with_handler(bench, by_model if options is BY_MODEL else by_row)
    assert bench.deliver(event(3), event(3)) == [Outcome.PROCEED] * 2
    assert seen == [None, 7]


@pytest.mark.parametrize(("missing", "outcome"), [("retry", Outcome.RETRY), ("reject", Outcome.REJECT)])
def test_missing_rows(make_bench: MakeBench, table: None, missing: str, outcome: Outcome) -> None:
    """Also a row that an earlier message of the unit deleted is missing."""

    def handler(body: dict[str, Any], ride: Row[Any], session: Session) -> None:
        session.execute(delete(TABLE).where(TABLE.c.ride_id == ride.ride_id))

    bench = with_handler(make_bench("pessimistic_lock", {**BY_TABLE, "missing": missing}), handler)
    assert bench.deliver(event(3), event(1), event(1, 2)) == [outcome, Outcome.PROCEED, outcome]
    assert rides.of(bench.engine, "ride_id") == {2: 2}


def test_a_key_that_does_not_fit_is_refused(make_bench: MakeBench, table: None) -> None:
    """No row can have it."""
    bench = make_bench("pessimistic_lock", BY_TABLE, handler=rides.add_point)
    bad, good = bench.verdicts(event("x"), event(1))
    assert (bad.outcome, good.outcome) == (Outcome.REJECT, Outcome.PROCEED)
    assert "does not fit column" in bad.reason


@pytest.mark.parametrize("ride", [1, 3], ids=["row", "missing"])
def test_a_rival_is_waited_for(make_bench: MakeBench, table: None, ride: int) -> None:
    """Two workers read, think and write: without the lock one of the points were lost."""
    inside, finish, entered = threading.Event(), threading.Event(), threading.Event()

    def slow(body: Any, session: Session) -> None:
        rides.add_point(body, session)
        session.flush()
        inside.set()
        assert finish.wait(DEADLINE)

    def quick(body: Any, session: Session) -> None:
        entered.set()
        rides.add_point(body, session)

    first = make_bench("pessimistic_lock", BY_TABLE, handler=slow)
    second = make_bench("pessimistic_lock", BY_TABLE, handler=quick)
    with ThreadPoolExecutor(2) as threads:
        holder = threads.submit(first.deliver, event(ride))
        assert inside.wait(DEADLINE)
        waiter = threads.submit(second.deliver, event(ride))
        assert not entered.wait(0.2)
        finish.set()
        assert holder.result(DEADLINE) == waiter.result(DEADLINE) == [Outcome.PROCEED]
    assert rides.of(first.engine, "points")[ride] == 2


@pytest.mark.parametrize("database_url", SERVERS, indirect=True)  # SQLite has no lock of a row
def test_skip_runs_the_others(make_bench: MakeBench, database_url: str, table: None) -> None:
    """What is locked is tried again later at no cost; it is not taken for missing."""
    options = {**BY_TABLE, "locked": "skip", "missing": "reject"}
    bench = make_bench("pessimistic_lock", options, handler=rides.add_point)
    with held(database_url, 1):
        assert bench.deliver(event(1), event(2), event(3)) == [Outcome.DEFER, Outcome.PROCEED, Outcome.REJECT]
    assert bench.deliver(event(1)) == [Outcome.PROCEED]
    assert rides.of(bench.engine, "points") == {1: 1, 2: 1}


@pytest.mark.parametrize("database_url", SERVERS, indirect=True)
@pytest.mark.parametrize("options", [{"locked": "nowait"}, {"timeout": "1s"}], ids=["nowait", "timeout"])
def test_a_locked_row_is_no_messages_fault(
    make_bench: MakeBench, database_url: str, table: None, options: Any
) -> None:
    """After the time-out, or at once, the unit is run again; the healthy one commits, no one pays an attempt."""
    bench = make_bench("pessimistic_lock", {**BY_TABLE, **options}, handler=rides.add_point)
    with held(database_url, 1):
        assert bench.deliver(event(1), event(2)) == [Outcome.DEFER, Outcome.PROCEED]
    assert bench.deliver(event(1)) == [Outcome.PROCEED]
    assert rides.of(bench.engine, "points") == {1: 1, 2: 1}


@pytest.mark.parametrize("database_url", SERVERS, indirect=True)
def test_the_time_out_is_for_these_rows_only(make_bench: MakeBench, database_url: str, table: None) -> None:
    """Afterwards the handler's statements, and the connection's next unit, wait as long as ever."""
    seen = []
    ask = (
        "SHOW lock_timeout" if database_url.startswith("postgresql") else "SELECT @@innodb_lock_wait_timeout"
    )

    def handler(body: Any, session: Session) -> None:
        seen.append(str(session.connection().exec_driver_sql(ask).scalar_one()))

    bench = make_bench("pessimistic_lock", {**BY_TABLE, "timeout": "1s"}, handler=handler)
    assert bench.deliver(event(1)) == [Outcome.PROCEED]
    assert seen[0].removesuffix("s") == "10"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either which `model`"),
        ({**BY_TABLE, **BY_MODEL}, "either which `model`"),
        ({"table": "rides"}, "key must be a text"),
        ({"model": dict}, "is not a class that SQLAlchemy maps"),
        ({**BY_TABLE, "locked": "skipped"}, "did you mean 'skip'"),
        ({**BY_TABLE, "locked": "skip", "timeout": "1s"}, "does not wait"),
    ],
)
def test_wrong_options_are_refused(scope: Any, options: Any, words: str) -> None:
    """Every mistake has words of its own."""
    with pytest.raises(ConfigError, match=words):
        PessimisticLock.build(options, replace(scope, import_object=lambda _name: Ride))


def test_a_lock_alone_is_refused(make_bench: MakeBench, table: None, facts: Any) -> None:
    """It remembers nothing, so a second copy would run again."""
    bench = make_bench("pessimistic_lock", {"table": "rides", "key": "points"})
    chain = facts(strategies=("pessimistic_lock",))
    (alone,) = check_chain(chain, bench.strategies, UnitKind.TRANSACTIONAL)
    assert "only guards" in str(alone)
    (unfit,) = bench.strategies[0].check(chain)
    assert "is not unique" in str(unfit)


def test_a_mapped_class_may_be_named(scope: Any) -> None:
    """In YAML it is `module:Class`; its primary key is the key."""
    strategy = PessimisticLock.build(
        {"model": "models:Ride"}, replace(scope, import_object=lambda _name: Ride)
    )
    assert list(strategy.provides()) == [Ride]


def test_nothing_else_can_change_the_row(make_bench: MakeBench, database_url: str, table: None) -> None:
    """While the handler runs, another transaction's update waits until it has committed."""
    changed = threading.Event()
    rival = make_engine(database_url)

    def change() -> None:
        with rival.begin() as connection:
            connection.execute(update(TABLE).where(TABLE.c.ride_id == 1).values(points=100))
        changed.set()

    with ThreadPoolExecutor(1) as threads:

        def handler(body: Any, session: Session) -> None:
            handler.rival = threads.submit(change)  # type: ignore[attr-defined]
            assert not changed.wait(0.2)
            session.execute(insert(TABLE).values(ride_id=9, points=0))

        bench = make_bench("pessimistic_lock", BY_TABLE, handler=handler)
        assert bench.deliver(event(1)) == [Outcome.PROCEED]
        handler.rival.result(DEADLINE)  # type: ignore[attr-defined]
    rival.dispose()
    assert rides.of(bench.engine, "points")[1] == 100
