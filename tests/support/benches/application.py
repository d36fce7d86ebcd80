"""An app that gives points, over a scripted broker and SQLite, and its running in a thread."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.engine.application import Application
from oncemq.engine.plan import AppPlan
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.engine import make_engine
from oncemq.observe.monitor import Monitor
from oncemq.testing.scripted import ScriptedAdapter
from support.heard import Heard


def give(order: dict, session: Session) -> None:
    """Insert a row; fail where the message says so."""
    session.execute(text("INSERT INTO points VALUES (:id)"), {"id": order["id"]})
    if order.get("fault"):
        raise ValueError(order["fault"])


def order(number: int, **fields: Any) -> bytes:
    """Return a message's body."""
    return json.dumps({"id": number, "key": f"k{number}", **fields}).encode()


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database with a table of points."""
    engine = make_engine(sqlite_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE points (id INTEGER)"))
    yield engine
    engine.dispose()


@pytest.fixture
def adapter() -> ScriptedAdapter:
    """The broker."""
    return ScriptedAdapter()


def points(engine: Engine) -> list[int]:
    """Return what has been committed."""
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT id FROM points ORDER BY id")).scalars())


class Run:
    """An app in a thread, for tests that wait for its end."""

    def __init__(self, plan: AppPlan, **fields: Any) -> None:
        self.heard = Heard()
        self.app = Application(plan, monitor=Monitor(None, plan.clock, others=[self.heard]), **fields)
        self.code: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.until_idle: timedelta | None = None

    def _run(self) -> None:
        try:
            self.code = self.app.run(self.until_idle)
        except BaseException as error:
            self.error = error

    def start(self, until_idle: timedelta | None = None) -> "Run":
        """Start it."""
        self.until_idle = until_idle
        self._thread.start()
        return self

    def end(self) -> int | None:
        """Wait for its end; returns the exit code."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.code


# The roster and leases


def roster(engine: Engine) -> list[str]:
    """Return the processes that have not said goodbye."""
    with engine.connect() as connection:
        far = datetime.now(UTC) + timedelta(days=1)
        return [worker.host for worker in workers.unclean(connection, "shop", silent_since=far)]


def until(reached: Callable[[], Any]) -> None:
    """Look again until it is so."""
    pause = threading.Event()
    for _ in range(1000):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError("not reached in 10 s")
