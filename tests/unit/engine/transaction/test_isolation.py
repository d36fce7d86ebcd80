"""What a handler does past its session harms no neighbour, and is never called a duplicate."""

import threading
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, String, inspect, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq.ledger.records.processed import TABLE as PROCESSED
from oncemq_strategies.state_machine.strategy import StateMachine
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, Name, Shared, effects, give
from support.units import UnitBench, orders


def hidden_commit(session: Session, number: int) -> None:
    """End the transaction in one of the ways that no event shows."""
    kind = session.connection().dialect.name
    if number == 0:
        driver: Any = session.connection().connection.driver_connection
        driver.commit()
    elif kind == "postgresql":
        session.execute(text("UPDATE shared SET points = points; COMMIT"))
    elif kind in {"mysql", "mariadb"}:
        session.execute(text("EXECUTE IMMEDIATE 'COMMIT'"))
    else:
        session.connection().connection.cursor().executescript("UPDATE shared SET points = points; COMMIT")


@pytest.mark.parametrize("way", [0, 1], ids=["driver", "statement"])
def test_a_hidden_commit_loses_no_neighbour_and_no_record_stays(engine: Engine, way: int) -> None:
    """Neighbours take effect once, the message is a dead letter, and nothing calls it a duplicate afterwards."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            hidden_commit(session, way)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "bad", "c")) == ["applied", "applied", "rejected", "applied"]
    assert sorted(effects(engine)) in (["a", "b", "bad", "c"], ["a", "b", "c"])
    with engine.connect() as connection:
        rows = connection.execute(PROCESSED.select().where(PROCESSED.c.consumer == bench.plan.scope)).all()
    assert sorted(row.identity for row in rows) == ["a", "b", "c"]


@pytest.mark.parametrize("before", ["rollback", "setting"])
def test_a_doomed_handler_is_given_no_driver_connection(engine: Engine, before: str) -> None:
    """A handler that hid the error of its doomed transaction cannot commit neighbours and their records by the driver."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            if before == "rollback":
                session.rollback()
            else:
                with suppress(Exception):
                    session.execute(text("CREATE TEMPORARY TABLE seen_by_others (id INT)"))
            hidden_commit(session, 0)
        if order["id"] == "c":
            raise ValueError("not yet")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "bad", "c"))[3] == "retry"
    assert bench.run(*orders("a", "b", "c")) == ["duplicate", "duplicate", "retry"]
    assert [name for name in effects(engine) if name != "bad"] == ["a", "b"]


def test_a_search_path_stays_with_its_message(engine: Engine) -> None:
    """A message that goes to another schema or database leaves its neighbours and the ledger where they are."""
    if engine.dialect.name == "sqlite":
        return
    elsewhere = (
        "SET search_path = pg_temp" if engine.dialect.name == "postgresql" else "USE information_schema"
    )

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        session.flush()
        if order["id"] == "b":
            session.execute(text(elsewhere))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert bench.run(*orders("d")) == ["applied"]
    assert effects(engine) == ["a", "b", "c", "d"]


def test_a_session_in_another_thread_is_refused(engine: Engine) -> None:
    """Work that a handler leaves to another thread is an error of its message, and no success without effect."""

    def handler(order: dict[str, Any], session: Session) -> None:
        def work() -> None:
            with suppress(Exception):
                give(session, order)

        if order["id"] == "bad":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert bench.errors() == ["SessionOwned"]
    assert effects(engine) == ["a", "b"]


def test_a_session_after_its_handler_is_refused(engine: Engine) -> None:
    """A session that was kept writes nothing in a neighbour's name; the message that kept it is charged."""
    kept: list[Session] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "keeps":
            kept[:] = [session]
        elif kept:
            with suppress(Exception):
                kept[0].add(Effect(order_id="stray", key="k"))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("keeps", "a")) == ["retry", "applied"]
    assert effects(engine) == ["a"]


def test_what_is_set_on_a_session_stays_with_its_message(engine: Engine) -> None:
    """Flags, notes and attributes of one message's session are not those of the next one, also where neither sent anything."""
    seen: list[tuple[bool, int, bool]] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        seen.append((session.autoflush, len(session.info), hasattr(session, "mark")))
        session.autoflush = False
        session.info["order"] = order["id"]
        session.mark = order["id"]  # type: ignore[attr-defined]

    assert UnitBench(engine, handler, UniqueKey).run(*orders("a", "b", "c")) == ["applied"] * 3
    assert seen == [(True, 0, False)] * 3


def test_options_of_the_connection_stay_with_their_message(engine: Engine) -> None:
    """What a handler sets on the connection object, which all messages of a unit share, is gone for the next one."""
    marks: list[object] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        connection = session.connection()
        marks.append(connection.get_execution_options().get("mark"))
        connection.execution_options(mark=order["id"])

    assert UnitBench(engine, handler, UniqueKey).run(*orders("a", "b", "c")) == ["applied"] * 3
    assert marks == [None] * 3


def test_what_a_message_deleted_comes_back_to_no_other(engine: Engine) -> None:
    """A failing flush restores the objects of its own message only."""
    kept: list[Shared] = []
    came_back: list[bool] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "a":
            row = session.get_one(Shared, 1)
            kept.append(row)
            session.delete(row)
            session.flush()
            return
        session.execute(text("SELECT 1"))
        session.add(Name(name="taken"))
        try:
            session.flush()
        finally:
            came_back.extend(row in session for row in kept)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b")) == ["applied", "retry"]
    assert not any(came_back)


def test_a_look_at_a_table_blinds_nothing(engine: Engine) -> None:
    """SQLAlchemy turns off the events of errors on a connection on which it looked at a table of MySQL."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "a":
            inspect(session.connection()).get_columns("effects")
        else:
            session.execute(TAKE_THE_TAKEN)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b")) == ["applied", "retry"]
    assert bench.errors() == ["UniqueViolation"]


def test_a_message_behind_one_that_leaves_nothing_is_not_charged(engine: Engine) -> None:
    """A later message of the key ran on a state that the earlier one never reached: it has its turn again."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS rides_alone"))
        connection.execute(text("CREATE TABLE rides_alone (id VARCHAR(20) PRIMARY KEY, state VARCHAR(20))"))

    def handler(order: dict[str, Any], session: Session) -> None:
        """Forget to create the row."""

    options = {
        "to": "body.to",
        "states": ["created", "paid"],
        "entity": {"table": "rides_alone", "key": "id", "state": "state"},
    }
    bench = UnitBench(engine, handler, UniqueKey, (StateMachine, options))
    first, later = ({"id": name, "key": "k", "to": to} for name, to in (("a", "created"), ("b", "paid")))
    assert bench.run(first, later) == ["retry", "returned"]


class Linked(DeclarativeBase):
    """The tables of the next test."""


class Account(Linked):
    """What a booking needs."""

    __tablename__ = "accounts_alone"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)


class Booking(Linked):
    """Refused by the database without its account."""

    __tablename__ = "bookings_alone"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("accounts_alone.id"))


class Ride(Linked):
    """The row whose state moves."""

    __tablename__ = "rides_alone"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    state: Mapped[str | None] = mapped_column(String(20))


def run_rides(engine: Engine, handler: Any, savepoint_every: int | None) -> list[str]:
    """Return the outcomes of `d`, `a`, `b` and `c`, which create rides of their own keys, in one unit."""
    options = {
        "to": "body.to",
        "states": ["created"],
        "entity": {"table": "rides_alone", "key": "id", "state": "state"},
    }
    bench = UnitBench(engine, handler, UniqueKey, (StateMachine, options))
    bench.savepoint_every = savepoint_every
    return bench.run(*({"id": name, "key": f"k{name}", "to": "created"} for name in "dabc"))


@pytest.mark.parametrize("savepoint_every", [None, 3], ids=["one-run", "parts"])
def test_a_stranger_behind_one_that_leaves_nothing_is_not_charged(
    engine: Engine, savepoint_every: int | None
) -> None:
    """What a handler did is refused when its state is saved: a message of another key failed by it, and by nothing else."""
    for table in (Booking.__table__, Account.__table__, Ride.__table__):
        table.drop(engine, checkfirst=True)
    Linked.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO accounts_alone VALUES ('x')"))

    def handler(order: dict[str, Any], session: Session) -> None:
        """`a` deletes the account of what `b` merely adds, and forgets to create its own row."""
        if order["id"] == "a":
            session.execute(text("DELETE FROM accounts_alone"))
            return
        session.add(Ride(id=order["key"]))
        if order["id"] == "b":
            session.add(Booking(id="b", account="x"))

    assert run_rides(engine, handler, savepoint_every) == ["applied", "retry", "applied", "applied"]


@pytest.mark.parametrize("savepoint_every", [None, 4], ids=["one-run", "parts"])
def test_a_stranger_that_is_refused_together_with_the_cause_is_not_charged(
    engine: Engine, savepoint_every: int | None
) -> None:
    """`a` deletes the row of `b` and has none of its own: the strategy misses both rows, and only `a` is at fault."""
    Ride.__table__.drop(engine, checkfirst=True)
    Ride.__table__.create(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO rides_alone (id) VALUES ('kd'), ('kb'), ('kc')"))

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "a":
            session.execute(text("DELETE FROM rides_alone WHERE id = 'kb'"))

    assert run_rides(engine, handler, savepoint_every) == ["applied", "retry", "applied", "applied"]


HIDDEN = {
    "postgresql": ("UPDATE shared SET points = points; COMMIT", "SELECT 1; COMMIT; BEGIN"),
    "mysql": (
        "CALL commits()",
        "CALL defines()",
        "EXECUTE IMMEDIATE 'COMMIT'",
        "SET autocommit = 1",
        "/*!50000 COMMIT */",
        "BEGIN NOT ATOMIC COMMIT; END",
        "CREATE TABLE IF NOT EXISTS commits_by_itself (id INT)",
    ),
    "sqlite": ("COMMIT",),
}


@pytest.mark.parametrize("number", range(7))
def test_no_statement_that_commits_loses_a_neighbour(engine: Engine, number: int) -> None:
    """Whichever way a statement ends the transaction: neighbours are applied once, and what it spoiled is no success."""
    kind = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
    ways = HIDDEN[kind]
    if number >= len(ways):
        return
    if kind == "mysql":
        with engine.begin() as connection:
            for name, body in (
                ("commits", "COMMIT"),
                ("defines", "CREATE TABLE IF NOT EXISTS defined (id INT)"),
            ):
                connection.execute(text(f"CREATE OR REPLACE PROCEDURE {name}() BEGIN {body}; END"))

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            session.execute(text(ways[number]))

    bench = UnitBench(engine, handler, UniqueKey)
    went = bench.run(*orders("a", "b", "bad", "c"))
    assert [*went[:2], went[3]] == ["applied"] * 3
    assert went[2] in {"rejected", "retry"}
    assert [name for name in effects(engine) if name != "bad"] == ["a", "b", "c"]
