"""How a transaction begins: waiting for others who write is not the unit's own time, and it begins for the server too."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session

from oncemq.contracts.unit import Unit
from oncemq.engine.transaction.unit_transaction import RunMode
from oncemq.testing.fake_clock import FakeClock
from support.effects import effects, give
from support.units import UnitBench, orders


@contextmanager
def slow_begin(engine: Engine, clock: FakeClock) -> Iterator[None]:
    """Let every transaction begin ten seconds late, as behind another process's."""

    def wait(connection: Connection) -> None:
        clock.advance(timedelta(seconds=10))

    event.listen(engine, "begin", wait)
    try:
        yield
    finally:
        event.remove(engine, "begin", wait)


def test_a_unit_has_its_whole_time_after_it_has_begun(engine: Engine) -> None:
    """Messages are not returned unstarted because others were writing before."""
    clock = FakeClock()

    def handler(order: dict[str, Any], session: Session) -> None:
        clock.advance(timedelta(milliseconds=100))
        give(session, order)

    bench = UnitBench(engine, handler, clock=clock)
    with slow_begin(engine, clock):
        assert bench.run(*orders("a", "b", "c"), seconds=1.0) == ["applied", "applied", "applied"]
    assert effects(engine) == ["a", "b", "c"]


def test_a_handler_without_any_statement_is_applied(engine: Engine) -> None:
    """A transaction in which nothing was asked is not taken for one that a handler has ended."""
    bench = UnitBench(engine, lambda order: None)
    assert bench.run(*orders("a", "b")) == ["applied", "applied"]


def test_the_wait_is_told_apart(engine: Engine) -> None:
    """The next unit's size is learned from what is left without it."""
    clock = FakeClock()
    bench = UnitBench(engine, lambda order: None, clock=clock)
    unit = Unit(bench.plan.scope, [bench.delivery(order) for order in orders("a")], 60.0)
    with slow_begin(engine, clock):
        bench.attempt.run(unit, unit.deliveries, RunMode(), exclusive=False)
    assert unit.waited == 10.0
    assert unit.deadline == 70.0
