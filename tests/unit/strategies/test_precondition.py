"""`precondition`, on the user's own table."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Message
from oncemq.testing.strategy_suite.bench import Bench
from support.database import rides
from support.database.rides import TABLE, Ride, add_point

MakeBench = Callable[..., Bench]

ENTITY = {"table": "rides", "key": "ride_id"}
WHERE = {"points": "body.before", "status": "body.status"}
OPTIONS = {"entity": ENTITY, "where": WHERE}


def event(ride: Any, before: Any, status: Any = "open", **more: Any) -> Message:
    """Return a message that was made for a ride with so many points."""
    return Message(
        "rides", json.dumps({"id": ride, "before": before, "status": status, "n": 1, **more}).encode()
    )


@pytest.fixture
def table(database_url: str) -> None:
    """Create the table: one ride is open, one has no status."""
    rides.create(database_url, {"ride_id": 1, "status": "open", "points": 500}, {"ride_id": 2, "points": 500})


def test_it_runs_while_the_row_is_as_stated(make_bench: MakeBench, table: None) -> None:
    """A copy is refused, since the handler has changed the row."""
    bench = make_bench("precondition", OPTIONS, handler=add_point)
    assert bench.deliver(event(1, 500)) == [Outcome.PROCEED]
    assert bench.deliver(event(1, 500)) == [Outcome.REJECT]
    assert bench.deliver(event(1, "501")) == [Outcome.PROCEED]
    assert rides.of(bench.engine, "points") == {1: 502, 2: 500}


def test_the_refusal_names_the_columns_that_differ(make_bench: MakeBench, table: None) -> None:
    """Without their values, which are no one's business in a log."""
    bench = make_bench("precondition", OPTIONS, handler=add_point)
    assert [
        bench.verdicts(message)[0].reason
        for message in (event(1, 7), event(1, 500, "shut"), event(1, 7, "shut"))
    ] == [
        "points of rides differs for key '1'",
        "status of rides differs for key '1'",
        "points, status of rides differs for key '1'",
    ]


@pytest.mark.parametrize(
    ("ride", "status", "outcome"),
    [
        (1, None, "REJECT"),
        (2, None, "PROCEED"),
        (2, "open", "REJECT"),
        (2, "", "REJECT"),
        (1, ["open"], "REJECT"),
    ],
)
def test_null_is_equal_to_null_alone(
    make_bench: MakeBench, table: None, ride: int, status: Any, outcome: str
) -> None:
    """A column without a value is not the same as an empty one."""
    bench = make_bench("precondition", OPTIONS, handler=add_point)
    assert bench.deliver(event(ride, 500, status)) == [Outcome[outcome]]


def test_values_may_stand_in_the_options(make_bench: MakeBench, table: None) -> None:
    """Numbers and null as they are, text as an expression's literal."""
    where = {"points": 500, "version": None, "status": "'open'"}
    bench = make_bench("precondition", {"entity": ENTITY, "where": where}, handler=add_point)
    assert bench.deliver(event(1, 0)) == [Outcome.PROCEED]
    assert bench.deliver(event(2, 0)) == [Outcome.REJECT]


@pytest.mark.parametrize(("otherwise", "outcome"), [("retry", "RETRY"), ("stale", "STALE")])
def test_otherwise(make_bench: MakeBench, table: None, otherwise: str, outcome: str) -> None:
    """A refusal may also be a retry, or be too late."""
    bench = make_bench("precondition", {**OPTIONS, "otherwise": otherwise}, handler=add_point)
    assert bench.deliver(event(1, 7)) == [Outcome[outcome]]


@pytest.mark.parametrize(
    ("missing", "outcome"),
    [("run", "PROCEED"), ("insert", "PROCEED"), ("retry", "RETRY"), ("reject", "REJECT")],
)
def test_missing_rows(make_bench: MakeBench, table: None, missing: str, outcome: str) -> None:
    """Without a row there is nothing to compare: its handler inserts it, or the message waits or is refused."""
    bench = make_bench(
        "precondition", {**OPTIONS, "entity": {**ENTITY, "missing": missing}}, handler=add_point
    )
    assert bench.deliver(event(3, 500)) == [Outcome[outcome]]


def test_neighbours_do_not_disturb(make_bench: MakeBench, table: None) -> None:
    """In one transaction, too, what a neighbour changes in other rows is compared as it is then."""

    def everywhere(_body: Any, session: Session) -> None:
        session.execute(update(TABLE).values(points=TABLE.c.points + 1))

    points: list[str] = []
    bench = make_bench("precondition", OPTIONS, handler=everywhere, point=points.append)
    unit = [event(1, 500), event(2, 500, None), event(2, 501, None), event(1, 502)]
    wanted = [Outcome.PROCEED, Outcome.REJECT, Outcome.PROCEED, Outcome.PROCEED]
    assert bench.deliver(*unit) == wanted
    assert points.count("loaded") == 1
    assert rides.of(bench.engine, "points") == {1: 503, 2: 503}


def test_a_unit_has_many_messages_of_a_key(make_bench: MakeBench, table: None) -> None:
    """Each is compared with the row as the one before left it, in one transaction; a copy is refused."""
    points: list[str] = []
    bench = make_bench("precondition", OPTIONS, handler=add_point, point=points.append)
    unit = [event(1, 500), event(1, 501), event(1, 501), event(2, 500, None), event(1, 502)]
    assert [outcome.name for outcome in bench.deliver(*unit)] == [
        *("PROCEED", "PROCEED", "REJECT", "PROCEED", "PROCEED")
    ]
    assert points.count("loaded") == 1
    assert rides.of(bench.engine, "points") == {1: 503, 2: 501}


def test_a_row_that_an_earlier_message_only_added_is_compared(make_bench: MakeBench, table: None) -> None:
    """Added objects, which wait to be inserted with those of their neighbours, are in the database by then."""

    def handler(body: Any, session: Session) -> None:
        if body["before"] == 0:
            session.add(Ride(ride_id=body["id"], points=7, status="open"))
        else:
            add_point(body, session)

    bench = make_bench("precondition", OPTIONS, handler=handler)
    unit = [event(3, 0), event(3, 0), event(3, 7), event(3, 8)]
    wanted = [Outcome.PROCEED, Outcome.REJECT, Outcome.PROCEED, Outcome.PROCEED]
    assert bench.deliver(*unit) == wanted
    assert rides.of(bench.engine, "points")[3] == 9


def test_who_left_its_row_is_refused_though_a_neighbour_changes_it(
    make_bench: MakeBench, table: None
) -> None:
    """As if it had been alone; the neighbours are applied."""

    def handler(body: Any, session: Session) -> None:
        if body["before"] == "500":
            return
        session.execute(update(TABLE).values(points=TABLE.c.points + 1))

    bench = make_bench("precondition", OPTIONS, handler=handler)
    idle, busy = bench.verdicts(event(1, "500"), event(2, 500, None))
    assert (idle.outcome, busy.outcome) == (Outcome.REJECT, Outcome.PROCEED)
    assert "left points, status of rides as they were" in idle.reason
    assert rides.of(bench.engine, "points") == {1: 501, 2: 501}


def test_a_failed_neighbour_is_not_compared_with(make_bench: MakeBench, table: None) -> None:
    """What it has written is rolled back, and the next message finds the row as before."""

    def handler(body: Any, session: Session) -> None:
        add_point(body, session)
        session.flush()
        if body["n"] == 2:
            raise ValueError("after writing")

    bench = make_bench("precondition", OPTIONS, handler=handler)
    unit = [event(1, 500), event(1, 501, n=2), event(2, 500, None), event(1, 501)]
    outcomes = bench.deliver(*unit)
    assert [outcomes[0], outcomes[1], outcomes[2]] == [Outcome.PROCEED, Outcome.RETRY, Outcome.PROCEED]
    assert rides.of(bench.engine, "points")[2] == 501


def test_a_row_that_appears_between_is_locked(make_bench: MakeBench, table: None) -> None:
    """Another program has inserted it since the rows were locked: nothing may change it before the commit."""
    held: list[bool] = []

    def handler(body: Any, session: Session) -> None:
        if body["id"] == 1 and bench.engine.dialect.name == "postgresql":
            with bench.engine.begin() as other:
                other.execute(insert(TABLE).values(ride_id=3, points=500, status="open"))
        if body["id"] == 3:
            with bench.engine.connect() as other, pytest.raises(OperationalError) as caught:
                other.execute(select(TABLE).where(TABLE.c.ride_id == 3).with_for_update(nowait=True))
            held.append("could not obtain lock" in str(caught.value))
        add_point(body, session)

    bench = make_bench("precondition", OPTIONS, handler=handler)
    if bench.engine.dialect.name != "postgresql":
        pytest.skip("one database shows it")
    assert bench.deliver(event(1, 500), event(3, 500)) == [Outcome.PROCEED, Outcome.PROCEED]
    assert held == [True]


def test_a_handler_must_change_what_was_stated(make_bench: MakeBench, table: None) -> None:
    """Else a second copy would run as well; that can be allowed where another strategy takes care of copies."""
    where = {"status": "'open'"}
    bench = make_bench("precondition", {"entity": ENTITY, "where": where}, handler=add_point)
    (verdict,) = bench.verdicts(event(1, 500))
    assert verdict.outcome is Outcome.REJECT
    assert "left status of rides as they were" in verdict.reason
    allowed = {"entity": ENTITY, "where": where, "required": False}
    bench = make_bench("precondition", allowed, handler=add_point)
    assert bench.deliver(event(1, 500)) == [Outcome.PROCEED]


def test_a_handler_may_change_its_payload(make_bench: MakeBench, table: None) -> None:
    """What was stated is kept from before."""

    def handler(body: Any, session: Session) -> None:
        add_point(body, session)
        body.clear()

    assert make_bench("precondition", OPTIONS, handler=handler).deliver(event(1, 500)) == [Outcome.PROCEED]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"where": {"pionts": "body.before"}}, "did you mean 'points'"),
        ({"entity": {"table": "rides", "key": "status"}}, "is not unique"),
    ],
)
def test_unfit_tables_are_refused_at_start(
    make_bench: MakeBench, table: None, facts: Any, options: Any, words: str
) -> None:
    """What is wrong with the user's table is said before the first message."""
    (problem,) = make_bench("precondition", {**OPTIONS, **options}).strategies[0].check(facts())
    assert words in str(problem)
