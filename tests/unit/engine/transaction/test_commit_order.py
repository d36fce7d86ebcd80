"""What happens before a commit and what only after it; what may not be committed; who is to blame meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict
from oncemq.engine.crash.flight_recorder import Recorder, read_crash
from oncemq.errors import InfrastructureError, Reject, Retry
from oncemq.ledger.database.connect import READ_ONLY
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Effect, Name, Shared, effects, give
from support.units import UnitBench, orders


class Cache(Strategy):
    """Looks, in the moment in which a cache would be filled, what everyone else can see."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self, engine: Engine) -> None:
        self.seen: list[list[str]] = []
        self._engine = engine

    def decide(self, run: Run, item: Item) -> Verdict:
        """Have no objection."""
        return PROCEED

    def committed(self, run: Run) -> None:
        """Look with a connection of its own."""
        with self._engine.connect().execution_options(**{READ_ONLY: True}) as other:
            self.seen.append(list(other.scalars(select(Effect.order_id))))


def plain(order: dict[str, Any], session: Session) -> None:
    """Give what is ordered; fail where the order says so."""
    give(session, order)
    if order.get("fail"):
        session.flush()
        raise ValueError(order["id"])


def test_caches_are_filled_only_after_the_commit(engine: Engine) -> None:
    """Anyone who hears that a message was applied can see its effect: a mark before that could outlive a roll-back."""
    cache = Cache(engine)
    bench = UnitBench(engine, plain, cache)
    assert bench.run(*orders("a"), *orders("b", fail=True)) == ["applied", "retry"]
    assert cache.seen == [["a"]]


ENDS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda driver: driver.commit(),
    "rollback": lambda driver: driver.rollback(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_end_of_the_transaction_behind_our_back_is_seen(engine: Engine, end: Callable[[Any], Any]) -> None:
    """A handler that ends the transaction by the driver itself is dead-lettered: another try might double what is saved."""

    def handler(order: dict[str, Any], session: Session) -> None:
        session.flush()
        end(session.connection().connection.driver_connection)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a")) == ["rejected"]
    assert bench.errors() == ["HiddenCommit"]


def test_a_lock_failure_inside_an_own_savepoint_dooms_the_run(engine: Engine) -> None:
    """After a deadlock MariaDB has undone everything, not only the savepoint; a handler cannot go on as if not."""
    with engine.connect() as rival:
        if engine.dialect.name != "sqlite":
            rival.execute(select(Shared).where(Shared.id == 1).with_for_update())

        def handler(order: dict[str, Any], session: Session) -> None:
            give(session, order)
            if engine.dialect.name == "sqlite":
                raise InfrastructureError("there one writer locks everything")
            try:
                with session.begin_nested():
                    session.scalars(select(Shared).where(Shared.id == 1).with_for_update(nowait=True)).one()
            except OperationalError:
                return

        bench = UnitBench(engine, handler, UniqueKey)
        outcomes = bench.run(*orders("a"))
        rival.rollback()
    assert outcomes == ["deferred"]
    assert effects(engine) == []


def test_a_reject_after_sql_is_rolled_back(engine: Engine) -> None:
    """What a handler wrote past the session, which shows no sign of it, does not take effect either."""

    def handler(order: dict[str, Any], session: Session) -> None:
        session.execute(insert(Effect).values(order_id=order["id"], key=order["key"], attempt=1))
        if order["id"] == "bad":
            raise Reject("no")

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("a", "bad", "b")) == ["applied", "rejected", "applied"]
    assert effects(engine) == ["a", "b"]


def test_successors_wait_behind_a_dropped_item(engine: Engine) -> None:
    """A message dropped without a roll-back holds up its key in the very same run; later all of them can run."""
    early = {"first"}

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] in early:
            raise Retry("not yet")
        give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    same = orders("first", "second", "third", key="k")
    assert bench.run(*same, *orders("other")) == ["retry", "returned", "returned", "applied"]
    assert not bench.result.steps
    assert effects(engine) == ["other"]
    early.clear()
    assert bench.run(*same) == ["applied"] * 3


def test_the_first_to_read_is_not_blamed_for_a_neighbours_row(engine: Engine) -> None:
    """No one has read before, so nothing was flushed between messages: whose row the query fails on is not known yet."""

    def handler(order: dict[str, Any], session: Session) -> None:
        if order["id"] == "bad":
            session.add(Name(name="taken"))
        else:
            session.scalars(select(Effect)).all()
            give(session, order)

    bench = UnitBench(engine, handler, UniqueKey)
    assert bench.run(*orders("bad", "innocent", "b")) == ["retry", "applied", "applied"]
    assert effects(engine) == ["innocent", "b"]


@pytest.mark.parametrize("savepoint_every", [None], indirect=True, ids=["whole"])
def test_a_death_while_committing_has_no_culprit(engine: Engine, tmp_path: Path) -> None:
    """In handlers one message is accused; once all have run, the whole unit is under suspicion and no one charged."""
    file = tmp_path / "one.recorder"
    said: dict[str, Any] = {}

    def look(point: str) -> None:
        said[point] = read_crash(file, "shop.points")

    def handler(order: dict[str, Any], session: Session) -> None:
        look(order["id"])
        give(session, order)

    recorder = Recorder(file)
    bench = UnitBench(engine, handler, UniqueKey, recorder=recorder, point=look)
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]
    recorder.close()
    both = (("k-a", "a"), ("k-b", "b"))
    assert [said[name].suspects for name in ("a", "b")] == [both[:1], both[1:]]
    assert [(said[name].suspects, said[name].known) for name in ("handled", "saved", "before-commit")] == [
        (both, False)
    ] * 3
    assert said["loaded"] is None
    assert said["committed"] is None
