"""Tests of time limits: the watchdog's own logic, and running statements that it cancels on each database."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.engine.crash.time_limits import EXIT_HARD_LIMIT, TimeLimits, TimeLimitSlot, Watchdog
from oncemq.engine.transaction.statement_cancel import cancel_statement
from oncemq.ledger.database.engine import make_engine
from oncemq.message import headers
from oncemq.observe.events import TimeLimit
from oncemq.testing.fake_clock import FakeClock
from oncemq.testing.scripted import ScriptedAdapter
from support.engine import make_app, make_consumer, running
from support.heard import Heard

LIMITS = TimeLimits(timedelta(seconds=2), timedelta(seconds=5))
SLOW = {
    "postgresql": "SELECT pg_sleep(60)",
    "mysql": "SELECT SLEEP(60)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
}


class Watch:
    """A watchdog whose time and actions are in the test's hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.advance(timedelta(seconds=100))
        self.told: list[str] = []
        self.left: list[int] = []
        self.slot = TimeLimitSlot()
        self.slot.cancel = lambda: self.told.append("cancelled")
        self.dog = Watchdog(
            self.clock.monotonic,
            lambda consumer: self.told.append(f"soft {consumer}"),
            lambda consumer: self.told.append(f"hard {consumer}"),
            self.left.append,
        )

    def after(self, seconds: float) -> list[str]:
        """Let time pass and the watchdog look; returns everything it has done so far."""
        self.clock.advance(timedelta(seconds=seconds))
        self.dog.look("points", self.slot, LIMITS)
        return self.told


@pytest.fixture
def watch() -> Watch:
    """A watchdog and one worker's slot, in which a call begins now."""
    made = Watch()
    made.slot.started = made.clock.monotonic()
    return made


def test_a_call_within_its_limit_is_left_alone(watch: Watch) -> None:
    """Nothing happens before the soft limit."""
    assert watch.after(2.0) == []


def test_an_overdue_call_is_cancelled_once(watch: Watch) -> None:
    """The soft limit cancels and tells, and does neither again for the same call."""
    assert watch.after(2.1) == ["cancelled", "soft points"]
    assert watch.after(1.0) == ["cancelled", "soft points"]
    assert watch.slot.overdue == watch.slot.started


def test_an_idle_slot_is_never_overdue(watch: Watch) -> None:
    """A worker that waits for messages has no limit."""
    watch.slot.started = 0.0
    assert watch.after(1000) == []


def test_the_hard_limit_ends_the_process(watch: Watch, capfd: pytest.CaptureFixture[str]) -> None:
    """It is told, every thread's stack is shown, and the process leaves with the documented code."""
    watch.after(5.1)
    assert watch.told == ["hard points"]
    assert watch.left == [EXIT_HARD_LIMIT]
    assert "most recent call first" in capfd.readouterr().err


def test_the_process_ends_also_when_nothing_can_be_told(watch: Watch) -> None:
    """An observer or a closed stderr must not keep a hanging process alive."""
    watch.dog._on_hard = lambda _consumer: 1 / 0  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        watch.after(5.1)
    assert watch.left == [EXIT_HARD_LIMIT]


def test_a_cancel_that_comes_too_late_hits_no_statement(watch: Watch) -> None:
    """The call ended while the watchdog made up its mind: the next one's statement is not cancelled."""
    overdue = watch.slot.started
    watch.slot.started = overdue + 3
    assert not watch.slot.expire(overdue)
    assert watch.told == []


def test_a_worker_waits_for_a_cancel_on_its_way(watch: Watch) -> None:
    """A call that ends while it is being cancelled does not let the next one begin before the cancel is over."""
    cancelling, over, begun = threading.Event(), threading.Event(), threading.Event()

    def cancel() -> None:
        cancelling.set()
        over.wait(10)

    def end_call() -> None:
        watch.slot.wait_for_cancel()
        begun.set()

    watch.slot.cancel = cancel
    dog = threading.Thread(target=watch.slot.expire, args=(watch.slot.started,))
    worker = threading.Thread(target=end_call)
    dog.start()
    assert cancelling.wait(10)
    worker.start()
    assert not begun.wait(0.2)
    over.set()
    assert begun.wait(10)
    dog.join()
    worker.join()


def test_a_consumer_without_limits_is_not_watched(watch: Watch) -> None:
    """No thread is started for nothing."""
    watch.dog.watch("points", watch.slot, TimeLimits(None, None))
    assert watch.dog._thread is None


# On real databases


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An empty database with a table of points."""
    engine = make_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE points (id INTEGER)"))
    yield engine
    engine.dispose()


def test_soft_limit_cancels_the_running_statement(engine: Engine) -> None:
    """The slow message's statement is cancelled and its unit rolled back; it loses one attempt, its neighbours none."""
    adapter, heard = ScriptedAdapter(), Heard()

    def handle(order: dict, session: Session) -> None:
        session.execute(text("INSERT INTO points VALUES (:id)"), {"id": order["id"]})
        if order["id"] == 3:
            session.execute(text(SLOW[engine.dialect.name])).all()

    consumer = make_consumer(handle, soft_limit=timedelta(milliseconds=400))
    with running(make_app(adapter, engine, consumer), observers=[heard]):
        for number in range(6):
            adapter.deliver(json.dumps({"id": number, "key": f"k{number}"}).encode())
        adapter.wait_until(lambda a: len(a.acknowledged) == 5 and len(a.retried) == 1, 30)
    assert adapter.retried[0].headers[headers.ERROR_CLASS] == "TimeLimitExceeded"
    assert adapter.retried[0].headers[headers.ATTEMPT] == "2"
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id FROM points ORDER BY id")).scalars().all()
    assert rows == [0, 1, 2, 4, 5]
    assert {told.arguments[2] for told in heard.of("time_limit")} == {TimeLimit.SOFT}


def test_a_slow_handler_that_swallows_the_cancel_is_rolled_back(engine: Engine) -> None:
    """Catching the database's error does not buy more time."""
    adapter = ScriptedAdapter()

    def handle(order: dict, session: Session) -> None:
        session.execute(text("INSERT INTO points VALUES (:id)"), {"id": order["id"]})
        with suppress(Exception):
            session.execute(text(SLOW[engine.dialect.name])).all()

    consumer = make_consumer(handle, soft_limit=timedelta(milliseconds=300))
    with running(make_app(adapter, engine, consumer)):
        adapter.deliver(b'{"id": 1, "key": "k"}')
        adapter.wait_until(lambda a: len(a.retried) == 1, 30)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM points")) == 0


def test_a_handler_that_is_slow_without_a_statement_is_rolled_back(engine: Engine) -> None:
    """Where there is nothing to cancel, the unit still does not commit."""
    adapter, heard = ScriptedAdapter(), Heard()

    def handle(order: dict, session: Session) -> None:
        session.execute(text("INSERT INTO points VALUES (:id)"), {"id": order["id"]})
        heard.wait_for("time_limit")

    consumer = make_consumer(handle, soft_limit=timedelta(milliseconds=100))
    with running(make_app(adapter, engine, consumer), observers=[heard]):
        adapter.deliver(b'{"id": 1, "key": "k"}')
        adapter.wait_until(lambda a: len(a.retried) == 1, 30)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM points")) == 0


def test_cancelling_works_while_the_pool_is_empty(engine: Engine, database_url: str) -> None:
    """The connection that carries the cancel is not taken from the pool, which may be stuck itself."""
    engine.dispose()
    small = make_engine(database_url, pool_size=1)
    ended: list[Any] = []

    def run(connection: Any) -> None:
        try:
            ended.append(connection.execute(text(SLOW[small.dialect.name])).all())
        except Exception as error:
            ended.append(error)

    with small.connect() as first, small.connect():
        driver = first.connection.driver_connection
        worker = threading.Thread(target=run, args=(first,))
        worker.start()
        while worker.is_alive():
            # Repeated, since the statement may not have reached the server yet.
            cancel_statement(small, driver)
            worker.join(0.1)
    assert len(ended) == 1
    small.dispose()
