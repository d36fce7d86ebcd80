"""What a handler may do with its session and connection, and that nothing it does takes effect for others."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, Name, Shared, effects, give
from support.units import UnitBench, orders

Misdeed = Callable[[Session], Any]


def bench_with(engine: Engine, misdeed: Misdeed, *, at: str = "b") -> UnitBench:
    """Return a bench whose handler gives, and for the order `at` does `misdeed` afterwards."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == at:
            misdeed(session)

    return UnitBench(engine, handler, UniqueKey)


def swallow_all(session: Session) -> None:
    """Fail in the database and go on as if nothing had happened."""
    try:
        session.execute(TAKE_THE_TAKEN)
    except IntegrityError:
        return


def close_quietly(session: Session) -> None:
    """Try to close the session, and go on."""
    try:
        session.close()
    except Exception:
        return


REFUSED: dict[str, Misdeed] = {
    "close": lambda session: session.close(),
    "begin": lambda session: session.begin(),
    "reset": lambda session: session.reset(),
    "invalidate": lambda session: session.invalidate(),
    "expunge_all": lambda session: session.expunge_all(),
    "prepare": lambda session: session.prepare(),
    "rollback": lambda session: session.rollback(),
    "close, swallowed": close_quietly,
    "COMMIT": lambda session: session.execute(text("COMMIT")),
    "commit in small letters": lambda session: session.execute(text("  commit;")),
    "COMMIT behind a comment": lambda session: session.execute(text("/* all done */ COMMIT")),
    "COMMIT behind a line comment": lambda session: session.execute(text("-- all done\nCOMMIT")),
    "ROLLBACK": lambda session: session.execute(text("ROLLBACK")),
    "BEGIN": lambda session: session.execute(text("BEGIN")),
    "connection.commit()": lambda session: session.connection().commit(),
    "connection.rollback()": lambda session: session.connection().rollback(),
    "connection.close()": lambda session: session.connection().close(),
    "connection.invalidate()": lambda session: session.connection().invalidate(),
    "a savepoint left open": lambda session: session.begin_nested(),
    "a raw savepoint left open": lambda session: session.connection().begin_nested(),
}


@pytest.mark.parametrize("misdeed", REFUSED.values(), ids=REFUSED)
def test_ending_the_transaction_charges_that_message_alone(engine: Engine, misdeed: Misdeed) -> None:
    """Whatever ends session or transaction is charged to its message, and the neighbours take effect."""
    bench = bench_with(engine, misdeed)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a", "c"]


def test_a_savepoint_is_not_left_open_where_nothing_was_sent(engine: Engine) -> None:
    """SQLAlchemy sends a session's savepoint with the first statement in it; left open it is refused before that."""

    def handler(order: dict[str, str], session: Session) -> None:
        session.begin_nested()

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a")) == ["retry"]
    assert bench.errors() == ["SessionOwned"]


@pytest.mark.parametrize("misdeed", REFUSED.values(), ids=REFUSED)
def test_ending_the_transaction_is_named(engine: Engine, misdeed: Misdeed) -> None:
    """The charge says that the handler did what only the framework may do."""
    bench = bench_with(engine, misdeed, at="a")
    bench.run(*orders("a"))
    assert bench.errors() in (["SessionOwned"], ["HandlerFault"])


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE made (id int)", "TRUNCATE TABLE shared", "SET autocommit = 1"]
)
def test_an_implicit_commit_of_mariadb_is_refused(engine: Engine, statement: str) -> None:
    """Statements that end a transaction on MariaDB do not reach the server."""
    if engine.dialect.name not in {"mysql", "mariadb"}:
        statement = "COMMIT"  # the others have no implicit commits
    bench = bench_with(engine, lambda session: session.execute(text(statement)))
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a", "c"]


def test_a_transaction_ended_through_the_driver_is_noticed(engine: Engine) -> None:
    """A handler that rolls back by the driver's own connection, which no event tells, does not lose its neighbours."""

    def misdeed(session: Session) -> None:
        session.flush()
        if engine.dialect.name in {"mysql", "mariadb"}:
            session.execute(text("ROLLBACK"))  # PyMySQL does not say whether a transaction is open
        driver: Any = session.connection().connection.driver_connection
        driver.rollback()

    bench = bench_with(engine, misdeed, at="c")
    outcomes = bench.run(*orders("a", "b", "c"))
    assert outcomes[:2] == ["applied", "applied"]
    assert outcomes[2] in {"retry", "rejected"}
    assert effects(engine) == ["a", "b"]


def test_commit_only_flushes(engine: Engine) -> None:
    """session.commit() sends what is pending; the transaction stays open, and a later failure undoes it."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        session.commit()
        if order["id"] == "b":
            raise ValueError(order["id"])

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a", "c"]


def test_a_session_block_leaves_the_session_open(engine: Engine) -> None:
    """`with session:` in a handler closes nothing."""

    def handler(order: dict[str, Any], session: Session) -> None:
        with session:
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]
    assert effects(engine) == ["a", "b"]


def test_own_savepoints_are_allowed(engine: Engine) -> None:
    """A database error inside the handler's own savepoint is the handler's own business."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        try:
            with session.begin_nested():
                session.execute(TAKE_THE_TAKEN)
        except IntegrityError:
            give(session, {**order, "id": order["id"] + "-plan-b"})

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]
    assert sorted(effects(engine)) == ["a", "a-plan-b", "b", "b-plan-b"]


def test_a_failing_flush_in_an_own_savepoint_is_allowed(engine: Engine) -> None:
    """An object that cannot be flushed inside the handler's own savepoint harms no one."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        try:
            with session.begin_nested():
                session.add(Name(name="taken"))
                session.flush()
        except IntegrityError:
            return

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]
    assert sorted(effects(engine)) == ["a", "b"]


@pytest.mark.parametrize("savepoint_every", [None], indirect=True, ids=["whole"])
def test_a_session_shows_nothing_of_earlier_messages(engine: Engine) -> None:
    """Objects of an earlier message are not in the session of the next one, in the same unit or another."""
    seen: list[int] = []
    kept: list[Shared] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        seen.append(len(session.identity_map))
        kept.append(session.get_one(Shared, 1))

    bench = UnitBench(engine, handler)
    bench.run(*orders("a", "b"))
    bench.run(*orders("c"))
    assert seen == [0, 0, 0]


def test_a_foreign_session_is_not_guarded(engine: Engine) -> None:
    """A session that the handler opened by itself is its own: commit and errors there doom nothing."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if engine.dialect.name == "sqlite":
            return  # one writer at a time: a second transaction would wait for ours
        with Session(engine) as own:
            own.add(Effect(order_id="own", key=order["key"]))
            own.commit()
            own.rollback()

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a")) == ["applied"]
    assert "a" in effects(engine)
