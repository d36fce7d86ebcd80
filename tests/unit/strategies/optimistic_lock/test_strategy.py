"""`optimistic_lock`, on the user's own table."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Message
from oncemq.testing.strategy_suite.bench import Bench
from support.database import rides
from support.database.rides import TABLE, Ride, VersionedRide, add_point

DEADLINE = 30.0
MakeBench = Callable[..., Bench]

ENTITY = {"table": "rides", "key": "ride_id", "version": "version"}
OPTIONS = {"entity": ENTITY}
SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")]


def event(ride: Any, version: Any, **more: Any) -> Message:
    """Return a message about a ride."""
    return Message("rides", json.dumps({"id": ride, "n": version, **more}).encode())


@pytest.fixture
def table(database_url: str) -> None:
    """Create the table: ride 1 is at version 4."""
    rides.create(database_url, {"ride_id": 1, "status": "open", "version": 4})


def test_the_messages_version_is_the_rows_next_one(make_bench: MakeBench, table: None) -> None:
    """On a row at 4 only 5 runs: 4 is a copy of what made it so, 3 is late, 6 is early."""
    bench = make_bench("optimistic_lock", OPTIONS, handler=add_point)
    for version, outcome in [(3, "STALE"), (4, "DUPLICATE"), (6, "WAIT"), (5, "PROCEED"), (5, "DUPLICATE")]:
        assert bench.deliver(event(1, version)) == [Outcome[outcome]]
    assert (rides.of(bench.engine, "version"), rides.of(bench.engine, "points")) == ({1: 5}, {1: 1})


def test_the_messages_version_is_the_rows_current_one(make_bench: MakeBench, table: None) -> None:
    """On a row at 4 only 4 runs, and leaves 5; a second message made for 4 is stale."""
    bench = make_bench("optimistic_lock", {**OPTIONS, "message_version": "current"}, handler=add_point)
    for version, outcome in [(3, "STALE"), (5, "WAIT"), (4, "PROCEED"), (4, "STALE"), (5, "PROCEED")]:
        assert bench.deliver(event(1, version)) == [Outcome[outcome]]
    assert (rides.of(bench.engine, "version"), rides.of(bench.engine, "points")) == ({1: 6}, {1: 2})


def test_one_unit_holds_several_versions(make_bench: MakeBench, table: None) -> None:
    """Each message sees what its predecessor in the same unit left."""
    bench = make_bench("optimistic_lock", OPTIONS, handler=add_point)
    outcomes = bench.deliver(event(1, 5), event(1, 6), event(1, 5), event(2, 1), event(2, 2), event(2, 2))
    assert [outcome.name for outcome in outcomes] == [
        "PROCEED",
        "PROCEED",
        "STALE",
        "PROCEED",
        "PROCEED",
        "DUPLICATE",
    ]
    assert rides.of(bench.engine, "version") == {1: 6, 2: 2}


@pytest.mark.parametrize(("early", "outcome"), [("reject", Outcome.REJECT), ("run", Outcome.PROCEED)])
def test_early_versions(make_bench: MakeBench, table: None, early: str, outcome: Outcome) -> None:
    """What is ahead of its row is refused, or skips ahead, as said."""
    bench = make_bench("optimistic_lock", {**OPTIONS, "early": early}, handler=add_point)
    assert bench.deliver(event(1, 9), event(2, 3)) == [outcome] * 2
    assert rides.of(bench.engine, "version") == ({1: 9, 2: 3} if early == "run" else {1: 4})


@pytest.mark.parametrize(("missing", "outcome"), [("retry", Outcome.RETRY), ("reject", Outcome.REJECT)])
def test_missing_rows(make_bench: MakeBench, table: None, missing: str, outcome: Outcome) -> None:
    """Where handlers do not insert rows, a message for none waits or is refused."""
    bench = make_bench("optimistic_lock", {"entity": {**ENTITY, "missing": missing}}, handler=add_point)
    assert bench.deliver(event(2, 1), event(1, 5)) == [outcome, Outcome.PROCEED]
    assert rides.of(bench.engine, "version") == {1: 5}


def test_versions_may_begin_at_nought(make_bench: MakeBench, table: None) -> None:
    """`first: 0` lets the first message carry 0; what is before the first version is refused."""
    bench = make_bench("optimistic_lock", {**OPTIONS, "first": 0}, handler=add_point)
    assert bench.deliver(event(2, -1), event(2, 0), event(2, 1)) == [
        Outcome.REJECT,
        Outcome.PROCEED,
        Outcome.PROCEED,
    ]
    assert rides.of(bench.engine, "version") == {1: 4, 2: 1}


@pytest.mark.parametrize("version", [None, "four", 1.5, True, "007", 2**70])
def test_what_is_no_version_is_refused(make_bench: MakeBench, table: None, version: Any) -> None:
    """It ends as a dead letter that says so."""
    bench = make_bench("optimistic_lock", {**OPTIONS, "version": "body.v"}, handler=add_point)
    (verdict,) = bench.verdicts(event(1, 5, v=version))
    assert verdict.outcome is Outcome.REJECT
    assert "a version is a whole number" in verdict.reason


def test_a_handler_may_set_the_version_itself(make_bench: MakeBench, table: None) -> None:
    """It is no rival of its own message, in one unit and across, for old rows and new ones."""

    def handler(body: Any, session: Session) -> None:
        add_point(body, session)
        ride = session.get_one(Ride, int(body["id"]))
        ride.version = body["n"]
        session.flush()

    bench = make_bench("optimistic_lock", OPTIONS, handler=handler)
    assert bench.deliver(event(1, 5), event(1, 6), event(2, 1)) == [Outcome.PROCEED] * 3
    assert bench.deliver(event(1, 6), event(2, 2)) == [Outcome.DUPLICATE, Outcome.PROCEED]
    assert rides.of(bench.engine, "version") == {1: 6, 2: 2}


@pytest.mark.parametrize("ride", [1, 2], ids=["deleted", "not-inserted"])
def test_a_row_that_the_handler_does_not_leave_is_its_items_fault(
    make_bench: MakeBench, table: None, ride: int
) -> None:
    """Without a row there is no version, so a copy would run: the item is retried, with words."""

    def handler(body: Any, session: Session) -> None:
        if body["id"] == 3:
            add_point(body, session)
        else:
            session.execute(delete(TABLE).where(TABLE.c.ride_id == body["id"]))

    bench = make_bench("optimistic_lock", OPTIONS, handler=handler)
    lost, kept = bench.verdicts(event(ride, 5 if ride == 1 else 1), event(3, 1))
    assert (lost.outcome, kept.outcome) == (Outcome.RETRY, Outcome.PROCEED)
    assert "rides" in lost.reason
    assert rides.of(bench.engine, "version") == {1: 4, 3: 1}


@pytest.mark.parametrize("database_url", SERVERS, indirect=True)  # SQLite has one writer at a time
@pytest.mark.parametrize("ride", [1, 2], ids=["known", "new"])
def test_a_rival_in_between_wins(make_bench: MakeBench, database_url: str, table: None, ride: int) -> None:
    """Anyone who comes second has no effect and pays no attempt; its neighbours commit."""
    number = 5 if ride == 1 else 1
    rival = make_engine(database_url)
    came = []

    def interfere(body: Any, session: Session) -> None:
        if body["id"] == ride and not came:
            came.append(body)
            with rival.begin() as connection:
                if ride == 1:
                    connection.execute(update(TABLE).where(TABLE.c.ride_id == 1).values(version=number))
                else:
                    connection.execute(TABLE.insert().values(ride_id=2, version=number, points=0))
        session.execute(update(TABLE).where(TABLE.c.ride_id == body["id"]).values(points=TABLE.c.points + 1))
        if body["id"] == 3:
            add_point(body, session)

    bench = make_bench("optimistic_lock", OPTIONS, handler=interfere)
    lost, kept = bench.verdicts(event(ride, number), event(3, 1))
    rival.dispose()
    assert (lost.outcome, kept.outcome) == (Outcome.DEFER, Outcome.PROCEED)
    assert "another transaction changed" in lost.reason
    assert bench.deliver(event(ride, number)) == [Outcome.DUPLICATE]
    assert rides.of(bench.engine, "points")[ride] == 0


def test_two_workers_apply_every_version_once(make_bench: MakeBench, table: None) -> None:
    """Both get everything, in units that overlap: nothing is lost, nothing is doubled."""
    benches = [make_bench("optimistic_lock", OPTIONS, handler=add_point) for _ in range(2)]
    messages = [event(ride, version) for version in range(1, 6) for ride in range(10, 14)]
    start = threading.Barrier(2)

    def work(bench: Bench, part: int) -> None:
        start.wait(DEADLINE)
        for first in range(0, len(messages), part):
            bench.deliver_all(*messages[first : first + part])

    with ThreadPoolExecutor(2) as threads:
        for run in [threads.submit(work, bench, part) for bench, part in zip(benches, (4, 5), strict=True)]:
            run.result(DEADLINE)
    assert rides.of(benches[0].engine, "points") == {1: 0, 10: 5, 11: 5, 12: 5, 13: 5}


def test_a_versioned_class_of_the_users_own_is_retried(
    make_bench: MakeBench, database_url: str, table: None
) -> None:
    """StaleDataError says that a rival was there: the same run again, and no attempt is charged."""
    tries = []

    def handler(body: Any, session: Session) -> None:
        ride: Any = session.get_one(VersionedRide, body["id"])
        tries.append(ride.version)
        if len(tries) == 1:  # as a rival would, seen from this object
            session.execute(update(TABLE).where(TABLE.c.ride_id == 1).values(version=TABLE.c.version + 1))
        ride.points += 1

    bench = make_bench("unique_key", {}, handler=handler)
    assert bench.deliver(event(1, 1)) == [Outcome.PROCEED]
    assert tries == [4, 4]
    assert rides.of(bench.engine, "points") == {1: 1}


def test_a_versioned_class_goes_with_the_strategy(make_bench: MakeBench, table: None) -> None:
    """Its own counting of the same column is no rival."""

    def handler(body: Any, session: Session) -> None:
        session.get_one(VersionedRide, body["id"]).points += 1

    bench = make_bench("optimistic_lock", OPTIONS, handler=handler)
    assert bench.deliver(event(1, 5), event(1, 6)) == [Outcome.PROCEED] * 2
    assert bench.deliver(event(1, 7), event(1, 6)) == [Outcome.PROCEED, Outcome.STALE]
    assert (rides.of(bench.engine, "version"), rides.of(bench.engine, "points")) == ({1: 7}, {1: 3})


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"table": "ride"}, "did you mean 'rides'"),
        ({"version": "versions"}, "did you mean 'version'"),
        ({"version": "status"}, "a version is a whole number"),
        ({"key": "points"}, "is not unique"),
    ],
)
def test_unfit_tables_are_refused_at_start(
    make_bench: MakeBench, table: None, facts: Any, entity: dict[str, str], words: str
) -> None:
    """What is wrong with the user's table is said before the first message."""
    bench = make_bench("optimistic_lock", {"entity": {**ENTITY, **entity}})
    (problem,) = bench.strategies[0].check(facts(has_version=True))
    assert words in str(problem)


def test_a_topic_without_version_is_refused(make_bench: MakeBench, table: None, facts: Any) -> None:
    """Unless the options say where the version stands."""
    (problem,) = make_bench("optimistic_lock", OPTIONS).strategies[0].check(facts())
    assert "declare the topic's `version`" in str(problem)
    assert not list(
        make_bench("optimistic_lock", {**OPTIONS, "version": "body.v"}).strategies[0].check(facts())
    )


def test_room_for_parked_messages_needs_parking(make_bench: MakeBench, table: None) -> None:
    """`park_limit` without `early: park` would limit nothing."""
    with pytest.raises(ConfigError, match=r"nothing is parked with `early: retry`"):
        make_bench("optimistic_lock", {**OPTIONS, "park_limit": 10})


@pytest.mark.parametrize("version", [None, 0])
def test_what_comes_before_the_first_version_is_no_duplicate(
    make_bench: MakeBench, database_url: str, version: int | None
) -> None:
    """Version 0 of a row that has none is refused in words, not taken for a copy."""
    rides.create(database_url, {"ride_id": 1, "status": "open", "version": version})
    bench = make_bench("optimistic_lock", OPTIONS, handler=add_point)
    (verdict,) = bench.verdicts(event(1, 0))
    assert (verdict.outcome, "`first: 1`" in verdict.reason) == (Outcome.REJECT, True)
    zero = make_bench("optimistic_lock", {**OPTIONS, "first": 0}, handler=add_point)
    assert zero.deliver(event(1, 0), event(1, 1)) == (
        [Outcome.PROCEED] * 2 if version is None else [Outcome.DUPLICATE, Outcome.PROCEED]
    )
