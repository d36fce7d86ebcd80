"""`state_machine`, on the ledger's table and on the user's own."""

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, insert, select, text
from sqlalchemy.event import listen
from sqlalchemy.orm import Mapped, Session, declarative_base, mapped_column

from oncemq import App
from oncemq.contracts.verdict import Outcome
from oncemq.errors import ConfigError
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Message
from oncemq.testing import TestApp
from oncemq.testing.strategy_suite.bench import Bench

DEADLINE = 30.0
MakeBench = Callable[..., Bench]

ENDING = {"created": ["paid", "cancelled"], "paid": ["shipped"]}
STATES = ["created", "paid", "shipped"]
ENTITY = {"table": "rides", "key": "ride_id", "state": "status"}
OPTIONS = {"to": "body.to", "states": STATES, "entity": ENTITY}


def event(entity: Any, to: Any, number: int = 1) -> Message:
    """Return a message that wants an entity in a state."""
    return Message("rides", json.dumps({"id": entity, "n": number, "to": to}).encode())


@pytest.fixture
def rides(database_url: str) -> Table:
    """Create the user's table: integer keys, one ride that has been created."""
    table = Table(
        "rides",
        MetaData(),
        Column("ride_id", Integer, primary_key=True, autoincrement=False),
        Column("status", String(20)),
        Column("points", Integer, nullable=False),
        mysql_engine="InnoDB",
    )
    engine = make_engine(database_url)
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(table).values(ride_id=1, status="created", points=0))
    engine.dispose()
    return table


def states(engine: Engine, table: Table) -> dict[int, str]:
    """Return the state of every ride."""
    with engine.connect() as connection:
        return {row.ride_id: row.status for row in connection.execute(select(table))}


def create_ride(table: Table) -> Callable[[Any, Session], None]:
    """Return a handler that creates its ride when it is missing."""

    def handler(body: Any, session: Session) -> None:
        number = int(body["id"])
        if session.execute(select(table).where(table.c.ride_id == number)).first() is None:
            session.execute(insert(table).values(ride_id=number, status="?", points=1))

    return handler


@pytest.mark.parametrize("early", ["run", "retry", "reject"])
def test_early_states(make_bench: MakeBench, early: str) -> None:
    """What is further ahead than the next state runs, waits, or is refused, as said."""
    bench = make_bench("state_machine", {"to": "body.to", "states": STATES, "early": early})
    outcome = {"run": Outcome.PROCEED, "retry": Outcome.WAIT, "reject": Outcome.REJECT}[early]
    assert bench.deliver(event("a", "shipped", 3)) == [outcome]
    assert bench.traces() == (1 if early == "run" else 0)


def test_transitions_wait_for_what_is_missing(make_bench: MakeBench) -> None:
    """An early state waits by default; a state that no way leads to is refused."""
    bench = make_bench(
        "state_machine",
        {"to": "body.to", "transitions": {"created": ["paid", "cancelled"], "paid": ["shipped"]}},
    )
    assert bench.deliver(event("a", "paid", 2), event("b", "created")) == [Outcome.WAIT, Outcome.PROCEED]
    assert bench.deliver(event("b", "cancelled", 2), event("b", "paid", 3)) == [
        Outcome.PROCEED,
        Outcome.REJECT,
    ]
    assert bench.deliver(event("b", "created")) == [Outcome.STALE]


def test_what_comes_after_a_final_state_is_stale(make_bench: MakeBench) -> None:
    """Also what no transition leads to; the final state again is a copy, and other entities go on."""
    bench = make_bench(
        "state_machine",
        {
            "to": "body.to",
            "transitions": ENDING,
            "final": ["cancelled", "shipped"],
        },
    )
    assert (
        bench.deliver(event("a", "created"), event("a", "cancelled", 2), event("b", "created"))
        == [Outcome.PROCEED] * 3
    )
    assert bench.deliver(
        event("a", "paid", 3), event("a", "shipped", 4), event("a", "cancelled", 2), event("b", "paid", 2)
    ) == [Outcome.STALE, Outcome.STALE, Outcome.DUPLICATE, Outcome.PROCEED]


def test_an_end_is_seen_by_the_rest_of_its_unit(make_bench: MakeBench) -> None:
    """Messages of one unit that follow the one which ends their entity are stale; another entity's are not."""
    bench = make_bench("state_machine", {"to": "body.to", "transitions": ENDING, "final": ["cancelled"]})
    assert bench.deliver(
        event("a", "created"), event("a", "cancelled", 2), event("b", "created"), event("a", "paid", 3)
    ) == [Outcome.PROCEED, Outcome.PROCEED, Outcome.PROCEED, Outcome.STALE]


def test_what_was_parked_is_stale_once_its_entity_has_ended(tmp_path: Path) -> None:
    """An early message waits; then its entity ends, by a message that fails once: nothing waits for ever, no dead letter."""
    app = App("ends", brokers={"main": "embedded://ends"}, database=f"sqlite:///{tmp_path}/ends.db")
    options = {"to": "body.to", "transitions": ENDING, "final": ["cancelled"], "early": "park"}
    app.topic("rides", key="body.id", strategies=[{"state_machine": options}])
    ran: list[str] = []

    @app.consumer(topic="rides")
    def move(body: dict[str, Any], session: Session) -> None:
        session.execute(text("SELECT 1"))
        ran.append(body["to"])
        if ran.count("cancelled") == 1 and body["to"] == "cancelled":
            raise ValueError("once")

    with TestApp(app) as test:
        assert test.publish("rides", {"id": "a", "to": "created"}).applied
        early = test.publish("rides", {"id": "a", "to": "shipped"})
        assert early.parked
        ended = test.publish("rides", {"id": "a", "to": "cancelled"})
        test.clock.advance("10m")
        assert ended.applied
        assert early.stale
        assert not test.dead_letters()
    assert ran == ["created", "cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"final": ["canceled"]}, "'canceled' is none of the states; did you mean 'cancelled'"),
        ({"final": ["created"]}, "'created' is final, and paid, cancelled may follow it"),
        ({"transitions": None, "states": STATES, "final": ["shipped"]}, "an ordered list ends with its last"),
    ],
)
def test_a_final_state_that_is_none_is_refused(
    make_bench: MakeBench, options: dict[str, Any], said: str
) -> None:
    """A typo, a state that others follow, or a list that has its own end: the start says so."""
    given = {"to": "body.to", "transitions": {"created": ["paid", "cancelled"]}, **options}
    with pytest.raises(ConfigError, match=re.escape(said)):
        make_bench("state_machine", {name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize("wanted", ["piad", None, 5, ["paid"]])
def test_what_is_no_state_is_refused(make_bench: MakeBench, wanted: Any) -> None:
    """A typo or a missing field ends as a dead letter that says so, and leaves nothing."""
    bench = make_bench("state_machine", {"to": "body.to", "states": STATES})
    (verdict,) = bench.verdicts(event("a", wanted))
    assert verdict.outcome is Outcome.REJECT
    assert "state" in verdict.reason
    assert bench.traces() == 0


def test_the_users_column_is_read_and_written(make_bench: MakeBench, rides: Table) -> None:
    """The state stands in the user's row, where the message finds and leaves it."""
    bench = make_bench("state_machine", OPTIONS)
    assert bench.deliver(event("1", "created"), event("1", "paid", 2), event("1", "created", 3)) == [
        Outcome.DUPLICATE,
        Outcome.PROCEED,
        Outcome.STALE,
    ]
    assert states(bench.engine, rides) == {1: "paid"}


def test_a_handler_may_create_the_row(make_bench: MakeBench, rides: Table) -> None:
    """A missing row has no state yet; the handler inserts it, the strategy writes the state."""
    bench = make_bench("state_machine", OPTIONS, handler=create_ride(rides))
    assert (
        bench.deliver(event(2, "created"), event(2, "paid", 2), event(3, "created")) == [Outcome.PROCEED] * 3
    )
    assert states(bench.engine, rides) == {1: "created", 2: "paid", 3: "created"}


def test_a_missing_row_is_its_items_fault(make_bench: MakeBench, rides: Table) -> None:
    """The item is retried with words; its neighbours commit."""
    bench = make_bench("state_machine", OPTIONS)
    lost, kept = bench.verdicts(event(2, "created"), event(1, "paid", 2))
    assert (lost.outcome, kept.outcome) == (Outcome.RETRY, Outcome.PROCEED)
    assert "rides has no row with ride_id = 2" in lost.reason
    assert states(bench.engine, rides) == {1: "paid"}


@pytest.mark.parametrize(("missing", "outcome"), [("retry", Outcome.RETRY), ("reject", Outcome.REJECT)])
def test_missing_rows(make_bench: MakeBench, rides: Table, missing: str, outcome: Outcome) -> None:
    """Where the handler does not create rows, a message for none waits or is refused."""
    bench = make_bench("state_machine", {**OPTIONS, "entity": {**ENTITY, "missing": missing}})
    assert bench.deliver(event(2, "created"), event(1, "paid", 2)) == [outcome, Outcome.PROCEED]
    assert states(bench.engine, rides) == {1: "paid"}


@pytest.mark.parametrize("key", ["abc", "007", "1.5", "9" * 30])
def test_a_key_that_does_not_fit_the_column_is_refused(make_bench: MakeBench, rides: Table, key: str) -> None:
    """Another spelling of a number is another key, which no row has."""
    bench = make_bench("state_machine", OPTIONS)
    bad, good = bench.verdicts(event(key, "paid"), event(1, "paid", 2))
    assert bad.outcome is Outcome.REJECT
    assert "does not fit column" in bad.reason
    assert good.outcome is Outcome.PROCEED
    assert states(bench.engine, rides) == {1: "paid"}


def test_a_handlers_object_does_not_overwrite_the_state(make_bench: MakeBench, rides: Table) -> None:
    """A mapped object of the same row may be changed, its state column too: the strategy writes last."""
    base = declarative_base()

    class Ride(base):  # type: ignore[valid-type, misc]
        __tablename__ = "rides"
        ride_id: Mapped[int] = mapped_column(primary_key=True)
        status: Mapped[str]
        points: Mapped[int]

    def handler(body: Any, session: Session) -> None:
        ride = session.get_one(Ride, int(body["id"]))
        ride.points += 30
        ride.status = "nonsense"

    bench = make_bench("state_machine", OPTIONS, handler=handler)
    assert bench.deliver(event(1, "paid", 2), event(1, "shipped", 3)) == [Outcome.PROCEED] * 2
    with bench.engine.connect() as connection:
        assert tuple(connection.execute(select(rides)).one()) == (1, "shipped", 60)


def _first_look(bench: Bench, knocked: threading.Event) -> tuple[str, Callable[..., None]]:
    """Return the event, and its listener, that says: the row was looked for, and not found."""
    if bench.engine.dialect.name == "sqlite":  # there it waits before its first statement
        return "before_cursor_execute", lambda *_: knocked.set()
    # MariaDB waits for the row that is being inserted; PostgreSQL does not see it.
    moment = "before_cursor_execute" if bench.engine.dialect.name == "mysql" else "after_cursor_execute"

    def listener(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FOR " in statement:
            knocked.set()

    return moment, listener


def test_a_missing_row_is_created_once(make_bench: MakeBench, rides: Table) -> None:
    """Two workers get the first message of a ride: the second waits, although there is no row to lock."""
    inside, finish, knocked = threading.Event(), threading.Event(), threading.Event()
    create = create_ride(rides)

    def slow(body: Any, session: Session) -> None:
        create(body, session)
        inside.set()
        assert finish.wait(DEADLINE)

    first, second = make_bench("state_machine", OPTIONS, handler=slow), make_bench("state_machine", OPTIONS)
    with ThreadPoolExecutor(2) as threads:
        holder = threads.submit(first.deliver, event(2, "created"))
        assert inside.wait(DEADLINE)
        listen(second.engine, *_first_look(second, knocked))
        waiter = threads.submit(second.deliver, event(2, "created"))
        assert knocked.wait(DEADLINE)
        assert not waiter.done()
        finish.set()
        assert holder.result(DEADLINE) == [Outcome.PROCEED]
        assert waiter.result(DEADLINE) == [Outcome.DUPLICATE]
    assert states(first.engine, rides) == {1: "created", 2: "created"}


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"table": "ride"}, "did you mean 'rides'"),
        ({"key": "rideid"}, "did you mean 'ride_id'"),
        ({"state": "points"}, "a state is text"),
        ({"key": "points"}, "is not unique"),
    ],
)
def test_unfit_tables_are_refused_at_start(
    make_bench: MakeBench, rides: Table, facts: Any, entity: dict[str, str], words: str
) -> None:
    """What is wrong with the user's table is said before the first message."""
    bench = make_bench("state_machine", {**OPTIONS, "entity": {**ENTITY, **entity}})
    (problem,) = bench.strategies[0].check(facts())
    assert words in str(problem)


def test_states_must_fit_the_column(make_bench: MakeBench, rides: Table, facts: Any) -> None:
    """A state longer than the column would be cut or fail later."""
    bench = make_bench("state_machine", {**OPTIONS, "states": ["created", "x" * 21]})
    (problem,) = bench.strategies[0].check(facts())
    assert "holds 20 characters" in str(problem)
    assert list(make_bench("state_machine", OPTIONS).strategies[0].check(facts())) == []
