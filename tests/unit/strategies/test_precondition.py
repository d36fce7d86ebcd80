"""`precondition`, on the user's own table."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Message
from oncemq.testing.strategy_suite.bench import Bench
from support.database import rides
from support.database.rides import TABLE, add_point

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
    """A unit holds one message: what its neighbour changes, also in other rows, is compared as it is then."""

    def everywhere(_body: Any, session: Session) -> None:
        session.execute(update(TABLE).values(points=TABLE.c.points + 1))

    bench = make_bench("precondition", OPTIONS, handler=everywhere)
    assert bench.strategies[0].traits.max_batch == 1
    unit = [event(1, 500), event(2, 500, None)]
    assert bench.deliver(*unit) == [Outcome.PROCEED, Outcome.REJECT]
    assert rides.of(bench.engine, "points") == {1: 501, 2: 501}


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
