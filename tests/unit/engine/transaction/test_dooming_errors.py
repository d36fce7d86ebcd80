"""A database error outside a handler's own savepoint: the run never commits, no matter who hides it, and the right message pays."""

from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, select, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from oncemq.ledger.records.processed import of_key
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, Name, Shared, effects, give, points
from support.units import UnitBench, orders


def test_a_swallowed_integrity_error_loses_nothing(engine: Engine) -> None:
    """Of 100 messages none is acknowledged without its effect, though one handler hides a failed statement.

    Where that undid only the statement, it is the handler's business.
    """
    whole = engine.dialect.name == "postgresql"

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "50":
            try:
                session.execute(TAKE_THE_TAKEN)
            except IntegrityError:
                return

    bench = UnitBench(engine, handler, UniqueKey)
    outcomes = bench.run(*orders(*map(str, range(100))))
    applied = [str(number) for number, outcome in enumerate(outcomes) if outcome == "applied"]
    assert len(applied) == (99 if whole else 100)
    assert outcomes[50] == ("retry" if whole else "applied")
    assert sorted(effects(engine)) == sorted(applied)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO names (name) VALUES (NULL)", "SELECT nonsense FROM names"]
)
def test_a_swallowed_error_of_any_kind_is_no_success(engine: Engine, statement: str) -> None:
    """Anyone who hides every exception hides also one that is raised while an error is being told."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "hides":
            with suppress(Exception):
                session.execute(text(statement))
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    outcomes = bench.run(*orders("a", "hides", "b"))
    only_statement = statement.startswith("INSERT") and engine.dialect.name != "postgresql"
    assert (outcomes[1] == "applied") is only_statement
    assert ("hides" in effects(engine)) is only_statement


def test_a_caught_error_costs_no_second_run(engine: Engine) -> None:
    """Where an error undoes its statement only, "insert, else update" is one run of each handler, beside neighbours."""
    calls: list[str] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        calls.append(order["id"])
        with suppress(IntegrityError):
            session.execute(TAKE_THE_TAKEN)
        give(session, order)

    if engine.dialect.name == "postgresql":
        return  # there it ends the transaction
    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied"] * 3
    assert calls == ["a", "b", "c"]


def test_a_swallowed_error_of_autoflush_loses_nothing(engine: Engine) -> None:
    """A handler that hides the error of a query, which flushed a neighbour's bad object, does not commit it away."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            session.add(Name(name="taken"))
            return
        try:
            session.scalars(select(Effect)).all()
        except SQLAlchemyError:
            return
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b", "c")) == ["applied", "retry", "applied", "applied"]
    assert effects(engine) == ["a", "b", "c"]


def test_autoflush_blames_the_message_that_added_the_row(engine: Engine) -> None:
    """A query that fails on a neighbour's object is charged to the neighbour."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            session.add(Name(name="taken"))
        else:
            session.scalars(select(Effect)).all()
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "innocent", "b")) == ["applied", "retry", "applied", "applied"]


def test_a_failing_validation_before_flush_blames_the_message_that_added(engine: Engine) -> None:
    """An error that the application raises while flushing a neighbour's object is the neighbour's."""

    def refuse(session: Session, *_: object) -> None:
        if any(isinstance(added, Name) and added.name == "ugly" for added in session.new):
            raise ValueError("ugly")

    def handler(order: dict[str, Any], session: Session) -> None:
        if not event.contains(session, "before_flush", refuse):
            event.listen(session, "before_flush", refuse)
        if order["id"] == "bad":
            session.add(Name(name="ugly"))
        else:
            session.scalars(select(Effect)).all()
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("bad", "innocent", "b")) == ["retry", "applied", "applied"]


@pytest.mark.parametrize("savepoint_every", [None], indirect=True, ids=["whole"])
def test_a_flush_that_fails_is_its_own_messages(engine: Engine) -> None:
    """A listener that fails in the flush of one message's objects costs that message an attempt, and no reader."""
    failures = [ValueError("once")]

    def refuse(session: Session, *_: object) -> None:
        if failures:
            raise failures.pop()

    def handler(order: dict[str, Any], session: Session) -> None:
        if not event.contains(session, "before_flush", refuse):
            event.listen(session, "before_flush", refuse)
        if order["id"] == "reader":
            session.scalars(select(Effect)).all()
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "reader", "b")) == ["retry", "applied", "applied"]


def test_a_flush_that_fails_without_the_database_blames_the_message_that_added(engine: Engine) -> None:
    """Where SQLAlchemy itself refuses a neighbour's object, a reading handler is not charged for it."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            session.add(Shared(id=None, points=1))
        else:
            session.scalars(select(Effect)).all()
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("bad", "innocent", "b")) == ["retry", "applied", "applied"]


def test_poison_at_the_flush_is_found(engine: Engine) -> None:
    """A row that only the final flush finds bad costs its own message an attempt, and no other."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.add(Name(name="taken"))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "b", "bad", "c")) == ["applied", "applied", "retry", "applied"]
    assert effects(engine) == ["a", "b", "c"]


@pytest.mark.parametrize("bad", ["first", "last", "both"])
def test_poison_at_the_flush_is_found_wherever_it_stands(engine: Engine, bad: str) -> None:
    """Several bad rows in one unit are found, all of them and nothing else."""
    names = ["a", "b", "c", "d", "e", "f", "g"]
    poisoned = {"first": {"a"}, "last": {"g"}, "both": {"a", "g"}}[bad]

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] in poisoned:
            session.add(Name(name="taken"))

    bench = UnitBench(engine, handler, UniqueKey)
    outcomes = dict(zip(names, bench.run(*orders(*names)), strict=True))
    assert {name for name, outcome in outcomes.items() if outcome == "retry"} == poisoned
    assert sorted(effects(engine)) == [name for name in names if name not in poisoned]


def test_poison_after_writing_leaves_nothing(engine: Engine) -> None:
    """A handler that raises after statements and pending objects leaves neither, and its neighbours all."""

    def handler(order: dict[str, Any], session: Session) -> None:
        session.execute(insert(Effect).values(order_id=order["id"], key=order["key"], attempt=1))
        give(session, order)
        if order["id"] == "bad":
            raise ValueError("after writing")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert sorted(effects(engine)) == ["a", "a", "b", "b"]


def test_a_changed_shared_row_of_a_failed_handler_is_undone(engine: Engine) -> None:
    """A handler that changes a row that neighbours have loaded and then raises leaves no trace of its change."""

    def handler(order: dict[str, Any], session: Session) -> None:
        session.get_one(Shared, 1).points += 1000 if order["id"] == "bad" else 1
        if order["id"] == "bad":
            raise ValueError("mutated")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert points(engine) == 2


def test_a_failed_message_leaves_no_dedup_row(engine: Engine) -> None:
    """What is retried is not a duplicate of its own failed try."""
    fail = [True]

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad" and fail[0]:
            raise ValueError("once")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad")) == ["applied", "retry"]
    fail[0] = False
    assert bench.run(*orders("a", "bad")) == ["duplicate", "applied"]
    assert sorted(effects(engine)) == ["a", "bad"]


def test_the_dedup_row_goes_with_the_effect(engine: Engine) -> None:
    """After a unit every applied message has its row, and no other has one."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            raise ValueError("before writing")
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    bench.run({"id": "dedup-a", "key": "dedup-1"}, {"id": "bad", "key": "dedup-2"})
    with engine.connect() as connection:
        rows = [row for key in ("dedup-1", "dedup-2") for row in of_key(connection, key)]
    assert [row["identity"] for row in rows if row["consumer"] == bench.plan.scope] == ["dedup-a"]


def test_a_deferred_constraint_at_commit_is_charged_to_its_message(
    engine: Engine, request: pytest.FixtureRequest
) -> None:
    """A constraint that fails only at COMMIT costs its own message an attempt, the others take effect."""
    if engine.dialect.name != "postgresql":
        deferred_text = "INSERT INTO names (name) VALUES ('taken')"  # the others have none: fails at once
    else:
        with engine.begin() as connection:
            connection.execute(
                text("CREATE TABLE IF NOT EXISTS later (name text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            )
            connection.execute(
                text("INSERT INTO later SELECT 'taken' WHERE NOT EXISTS (SELECT 1 FROM later)")
            )
        deferred_text = "INSERT INTO later (name) VALUES ('taken')"

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.execute(text(deferred_text))

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b", "c")) == ["applied", "retry", "applied", "applied"]
    assert sorted(effects(engine)) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException, GeneratorExit])
def test_what_ends_programs_is_only_a_failure_of_its_message(
    engine: Engine, kind: type[BaseException]
) -> None:
    """sys.exit() in a handler and the like cost an attempt; the worker and the neighbours go on."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            raise kind

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a", "b"]
