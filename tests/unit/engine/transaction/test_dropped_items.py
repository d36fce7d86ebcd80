"""The first rescue step: an item that has left nothing behind is dropped, and its run goes on."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from oncemq.errors import Reject, Retry
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Effect, Shared, effects, give, points
from support.units import UnitBench, orders


def test_a_reject_before_anything_costs_no_second_run(engine: Engine) -> None:
    """`raise Reject` before any effect leaves the run as it is: every handler runs once."""
    calls: Counter[str] = Counter()

    def handler(order: dict[str, Any], session: Session) -> None:
        calls[order["id"]] += 1
        if order["id"] == "bad":
            raise Reject("no")
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert calls == {"a": 1, "bad": 1, "b": 1}


def test_a_retry_before_anything_costs_no_second_run(engine: Engine) -> None:
    """`raise Retry` before any effect leaves the run as it is."""
    calls: Counter[str] = Counter()

    def handler(order: dict[str, Any], session: Session) -> None:
        calls[order["id"]] += 1
        if order["id"] == "bad":
            raise Retry("later")
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "retry", "applied"]
    assert calls == {"a": 1, "bad": 1, "b": 1}


def test_what_was_only_added_is_taken_back(engine: Engine) -> None:
    """What was added before `raise Reject` does not take effect, and no one runs a second time because of it."""
    calls: Counter[str] = Counter()

    def handler(order: dict[str, Any], session: Session) -> None:
        calls[order["id"]] += 1
        give(session, order)
        if order["id"] == "bad":
            raise Reject("no")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert effects(engine) == ["a", "b"]
    assert calls == {"a": 1, "bad": 1, "b": 1}
    assert not bench.result.steps


def test_what_a_handler_could_share_is_not_taken_back_alone(engine: Engine) -> None:
    """An object that was added after a change of a row that exists may be that row's: all is rolled back."""

    def handler(order: dict[str, Any], session: Session) -> None:
        row = session.get_one(Shared, 1)
        row.points += 1
        give(session, order)
        if order["id"] == "bad":
            raise Reject("no")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert (effects(engine), points(engine)) == (["a", "b"], 2)


def test_a_reject_after_a_change_is_rolled_back(engine: Engine) -> None:
    """What was changed in an object that a neighbour had changed before does not take effect."""
    row: list[Shared] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        if not row or row[0] not in session:
            row[:] = [session.get_one(Shared, 1)]
        row[0].points += 1000 if order["id"] == "bad" else 1
        if order["id"] == "bad":
            raise Reject("no")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert points(engine) == 2


def test_a_reject_after_a_delete_is_rolled_back(engine: Engine) -> None:
    """What was marked for deletion before `raise Reject` is still there."""

    def handler(order: dict[str, Any], session: Session) -> None:
        row = session.get_one(Shared, 1)
        if order["id"] == "bad":
            session.delete(row)
            raise Reject("no")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert points(engine) == 0


def test_a_reject_after_a_query_is_rolled_back(engine: Engine) -> None:
    """A query may have flushed what the handler added, so that it is no longer pending."""

    def handler(order: dict[str, Any], session: Session) -> None:
        give(session, order)
        if order["id"] == "bad":
            session.scalars(select(Effect)).all()
            raise Reject("no")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert effects(engine) == ["a", "b"]


def test_a_reject_inside_an_open_savepoint_is_rolled_back(engine: Engine) -> None:
    """A savepoint that a failed handler left open does not hide the errors of the next ones."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            session.begin_nested()
            raise Reject("no")
        assert not session.in_nested_transaction()
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("bad", "b")) == ["rejected", "applied"]


def test_successors_wait_behind_a_dropped_retry(engine: Engine) -> None:
    """Where the run goes on without a retried message, it goes on without that key's later ones too."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "1":
            raise Retry("later")
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    first, second = orders("1", "2", key="k")
    assert bench.run(first, *orders("a"), second) == ["retry", "applied", "returned"]
    assert effects(engine) == ["a"]


@pytest.mark.parametrize("savepoint_every", [None], indirect=True, ids=["whole"])
def test_payload_changes_of_a_failed_run_are_gone(engine: Engine) -> None:
    """A second run gets the payload as it was published, not as the first run left it."""
    seen: list[int] = []

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "a":
            seen.append(len(order["lines"]))
            order["lines"].append("one more")
        give(session, order)
        if order["id"] == "bad":
            session.flush()
            raise ValueError("roll back")

    bench = UnitBench(engine, handler, UniqueKey)
    bench.run(*orders("a", "bad", lines=["one"]))
    assert seen == [1, 1]
