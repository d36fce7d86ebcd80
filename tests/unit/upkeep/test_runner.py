"""Background work is done by one process at a time, and never for ever."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.engine import make_engine
from oncemq.strategy import UpkeepTask
from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep.runner import Upkeep

DEADLINE = 30.0


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Lend an engine with a fresh ledger, once for each kind of database."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that stands still."""
    return FakeClock()


def task(done: list[str], name: str = "sweep", more: int = 0) -> UpkeepTask:
    """Return a task that writes down each step and has `more` to do."""

    def step(_engine: Engine) -> bool:
        done.append(name)
        return len(done) <= more

    return UpkeepTask(name, timedelta(minutes=1), step)


def test_tasks_run_when_they_are_due(engine: Engine, clock: FakeClock) -> None:
    """At once, then after every pause."""
    done: list[str] = []
    upkeep = Upkeep(engine, [task(done)], clock)
    assert upkeep.run_due() == 60
    assert upkeep.run_due() == 60
    clock.advance(timedelta(seconds=61))
    upkeep.run_due()
    assert done == ["sweep"] * 2


def test_a_task_with_more_to_do_goes_on(engine: Engine, clock: FakeClock) -> None:
    """Steps follow each other until one says that nothing is left."""
    done: list[str] = []
    Upkeep(engine, [task(done, more=4)], clock).run_due()
    assert len(done) == 5


def test_one_process_does_a_task(engine: Engine, clock: FakeClock) -> None:
    """The second finds the lease taken, until it has expired."""
    first, second = list[str](), list[str]()
    one, two = Upkeep(engine, [task(first)], clock), Upkeep(engine, [task(second)], clock)
    for _ in range(3):
        one.run_due()
        two.run_due()
        clock.advance(timedelta(seconds=61))
    assert (len(first), len(second)) == (3, 0)
    clock.advance(timedelta(minutes=5))
    two.run_due()
    assert len(second) == 1


def test_a_failing_task_is_told_and_does_not_stop_others(engine: Engine, clock: FakeClock) -> None:
    """The error goes to whoever listens; the next task runs, the failing one is due again."""
    done: list[str] = []
    told: list[tuple[str, BaseException]] = []

    def fail(_engine: Engine) -> bool:
        raise RuntimeError("not today")

    tasks = [UpkeepTask("broken", timedelta(minutes=1), fail), task(done)]
    upkeep = Upkeep(engine, tasks, clock, lambda doing, error: told.append((doing, error)))
    upkeep.run_due()
    clock.advance(timedelta(seconds=61))
    upkeep.run_due()
    assert done == ["sweep"] * 2
    assert [(doing, str(error)) for doing, error in told] == [("upkeep 'broken'", "not today")] * 2


def test_stopping_gives_the_lease_back(engine: Engine, clock: FakeClock) -> None:
    """After an orderly stop a successor need not wait for the lease to expire."""
    ran = threading.Event()

    def step(_engine: Engine) -> bool:
        ran.set()
        return False

    first = Upkeep(engine, [UpkeepTask("sweep", timedelta(minutes=1), step)], clock)
    first.start()
    assert ran.wait(DEADLINE)
    first.stop()
    first.stop()
    done: list[str] = []
    Upkeep(engine, [task(done)], clock).run_due()
    assert done == ["sweep"]
