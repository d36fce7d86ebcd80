"""A handler's own savepoint: what it did is undone alone, and anyone who leaves all to the flush pays nothing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from oncemq.errors import Reject
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import TAKE_THE_TAKEN, Effect, Name, Shared, effects, give, points
from support.failing import failing, losing_the_connection_at
from support.units import UnitBench, orders


@pytest.fixture(autouse=True)
def savepoint_every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard every handler, whatever the other tests of this folder do."""
    monkeypatch.setattr(UnitBench, "guarded", True)


class Calls:
    """A handler that gives, fails where it is told, and counts how often it was called."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def __call__(self, order: dict[str, Any], session: Session) -> None:
        """Give, and perhaps fail after that."""
        self.of[order["id"]] += 1
        give(session, order)
        match order.get("fail"):
            case "raise":
                session.flush()
                raise ValueError(order["id"])
            case "reject":
                session.execute(text("SELECT 1"))
                raise Reject(order["id"])
            case "core":
                session.connection().execute(text("UPDATE shared SET points = points + 1000"))
                raise ValueError(order["id"])
            case "database":
                session.execute(TAKE_THE_TAKEN)
            case "swallowed":
                self._swallow(session)
            case "swallowed flush":
                session.execute(text("SELECT 1"))
                session.add(Name(name="taken"))
                with suppress(Exception):
                    session.flush()
            case "late":
                session.flush()
                session.add(Name(name="taken"))

    def _swallow(self, session: Session) -> None:
        try:
            session.execute(TAKE_THE_TAKEN)
        except Exception:
            return


@contextmanager
def savepoints(engine: Engine) -> Iterator[list[str]]:
    """Note every savepoint that is set."""
    seen: list[str] = []

    def listener(connection: Connection, name: str) -> None:
        del connection
        seen.append(name)

    event.listen(engine, "savepoint", listener)
    try:
        yield seen
    finally:
        event.remove(engine, "savepoint", listener)


@pytest.mark.parametrize(
    "how", ["raise", "reject", "core", "database", "swallowed", "swallowed flush", "late"]
)
def test_only_the_culprit_is_undone(engine: Engine, how: str) -> None:
    """Everyone's handler runs once, nothing of the culprit is left, and all others take effect."""
    calls = Calls()
    bench = UnitBench(engine, calls, UniqueKey)
    a, b, c, d = orders("a", "b", "c", "d")
    if how == "swallowed" and engine.dialect.name != "postgresql":
        return  # that undoes the statement only, which is the handler's business
    fate = "rejected" if how == "reject" else "retry"
    assert bench.run(a, b, failing(c, how), d) == ["applied", "applied", fate, "applied"]
    assert calls.of == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert (effects(engine), points(engine)) == (["a", "b", "d"], 0)
    assert not bench.result.steps
    assert (bench.unit.spoke, bench.unit.late) == (1, 1)


def test_several_culprits_one_after_the_other(engine: Engine) -> None:
    """Each is undone by itself; the first and the last, too."""
    calls = Calls()
    bench = UnitBench(engine, calls, UniqueKey)
    a, b, c, d, e = orders("a", "b", "c", "d", "e")
    outcomes = bench.run(failing(a, "raise"), failing(b, "core"), c, d, failing(e, "late"))
    assert outcomes == ["retry", "retry", "applied", "applied", "retry"]
    assert effects(engine) == ["c", "d"]
    assert set(calls.of.values()) == {1}


def test_who_does_not_speak_has_no_savepoint(engine: Engine) -> None:
    """Handlers that only add objects are flushed together; only the one that speaks has a savepoint."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    with savepoints(engine) as seen:
        bench.run(*orders("a", "b"), failing(orders("c")[0], "raise"), *orders("d"))
    assert len(seen) == 1


def test_a_failed_message_leaves_no_dedup_row(engine: Engine) -> None:
    """What was undone can run later; what stayed is a duplicate then."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    a, b, c = orders("a", "b", "c")
    bench.run(a, failing(b, "raise"), c)
    assert bench.run(a, b, c) == ["duplicate", "applied", "duplicate"]
    assert effects(engine) == ["a", "c", "b"]


def test_successors_wait_behind_what_was_undone(engine: Engine) -> None:
    """A key's later messages do not overtake the one that is tried again."""
    bench = UnitBench(engine, Calls(), UniqueKey)
    first, second = orders("1", "2", key="k")
    assert bench.run(failing(first, "raise"), *orders("a"), second) == ["retry", "applied", "returned"]
    assert effects(engine) == ["a"]


def test_who_speaks_and_succeeds_stays(engine: Engine) -> None:
    """Its savepoint is released, also what it left pending is kept, and the next ones fail without touching it."""

    def handler(order: dict[str, Any], session: Session) -> None:
        session.get_one(Shared, 1).points += 1
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            raise ValueError("bad")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert (effects(engine), points(engine)) == (["a", "b"], 2)


def test_a_change_of_a_row_that_others_changed_is_undone_alone(engine: Engine) -> None:
    """What a handler changed in a row that others of its unit have changed lies behind its savepoint, too."""
    row: list[Shared] = []
    calls: Counter[str] = Counter()

    def handler(order: dict[str, Any], session: Session) -> None:
        calls[order["id"]] += 1
        if not row or row[0] not in session:
            row[:] = [session.get_one(Shared, 1)]
        row[0].points += 1000 if order["id"] == "bad" else 1
        if order["id"] == "bad":
            session.flush()
            raise ValueError("bad")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert points(engine) == 2
    assert calls["a"] == 1


def test_a_neighbours_failing_flush_is_the_neighbours(engine: Engine) -> None:
    """What was pending before is flushed when a handler first speaks; who made it fail is found, and no one else charged."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            session.add(Name(name="taken"))
            return
        give(session, order)
        if order["id"] == "c":
            session.flush()

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "c", "d")) == ["applied", "retry", "applied", "applied"]
    assert effects(engine) == ["a", "c", "d"]


@pytest.mark.parametrize("layer", ["session", "connection"])
def test_a_handlers_own_savepoint_lies_inside(engine: Engine, layer: str) -> None:
    """Also where it is the first thing that a handler asks for; its error stays the handler's own business."""

    def handler(order: dict[str, Any], session: Session) -> None:
        lender = session if layer == "session" else session.connection()
        try:
            with lender.begin_nested():
                session.execute(TAKE_THE_TAKEN)
        except Exception:
            session.add(Effect(order_id=f"{order['id']}-instead", key="k"))
        give(session, order)
        if order["id"] == "bad":
            raise ValueError("bad")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a-instead", "a", "b-instead", "b"]


def test_a_savepoint_that_a_failed_handler_left_open_is_rolled_back(engine: Engine) -> None:
    """How two open savepoints lie is not worth finding out: the unit runs again without that message."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.begin_nested()
            raise ValueError("bad")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a", "b"]


def test_a_lost_connection_charges_no_message(engine: Engine) -> None:
    """The database's trouble is no one's fault, and is not undone alone."""
    bench = UnitBench(engine, losing_the_connection_at("b"), UniqueKey)
    assert bench.run(*orders("a", "b", "c")) == ["applied", "applied", "applied"]
    assert effects(engine) == ["a", "b", "c"]


def test_an_ended_transaction_is_noticed(engine: Engine) -> None:
    """Where the whole transaction is gone, nothing is undone alone: everything runs again."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            session.connection().rollback()

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert effects(engine) == ["a", "b"]
