"""A consumer that an operator paused takes nothing, holds nothing and loses nothing, in every process and over restarts."""

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.engine import ordered_pauses
from oncemq.engine.application import Application
from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import BREAKER, OPERATOR, Pause
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.server_clock import server_time
from oncemq.observe.state import PauseReason
from oncemq.operate import pausing
from oncemq.operate.auditing import Operator
from support.apps.program import eventually
from support.engine import make_app, make_consumer, running
from support.heard import Heard
from unit.engine.test_on_embedded import broker, publish

WAIT = 20.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the ledger at each look."""
    monkeypatch.setattr(ordered_pauses, "READ_EVERY", 0.0)


class Shop:
    """An app on the embedded broker, whose handler can be blocked."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine
        self.go = threading.Event()
        self.begun = threading.Event()
        self.go.set()
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE points (id INTEGER, attempt INTEGER)"))
        self.plan()  # creates the ledger

    def handle(self, order: dict, session: Session) -> None:
        """Insert a row, when allowed."""
        self.begun.set()
        assert self.go.wait(WAIT)
        session.execute(text("INSERT INTO points (id) VALUES (:id)"), {"id": order["id"]})

    def plan(self, **fields: Any) -> AppPlan:
        """Return a new process's plan."""
        return make_app(broker(self.folder), self.engine, make_consumer(self.handle, **fields))

    def effects(self) -> list[int]:
        """Return the ids of applied messages."""
        with self.engine.connect() as connection:
            return sorted(connection.execute(text("SELECT id FROM points")).scalars())

    def pause(self) -> None:
        """Pause the consumer as an operator does."""
        plan = self.plan()
        pausing.pause(plan, plan.consumers, Operator("alice@desk", "the warehouse is closed"))

    def resume(self) -> list[str]:
        """End that."""
        plan = self.plan()
        return pausing.resume(plan, plan.consumers, Operator("bob@desk"))


@pytest.fixture
def shop(tmp_path: Path, postgresql_database: str) -> Any:
    """An app whose broker is a file; SQLite has one writer, and a blocked handler would keep the operator out."""
    engine = make_engine(postgresql_database)
    yield Shop(tmp_path, engine)
    engine.dispose()


def state_of(app: Application) -> Any:
    """Return the state of the only consumer."""
    (row,) = app.state().consumers
    return row


def until(found: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    eventually(found, what, timeout=WAIT)


def test_a_consumer_paused_before_the_start_takes_nothing_until_it_is_resumed(shop: Shop) -> None:
    """The pause outlives processes; what waited is applied once after it."""
    shop.pause()
    publish(shop.folder, 1, 2, 3)
    heard = Heard()
    with running(shop.plan(), observers=[heard]) as app:
        until(lambda: bool(heard.of("consumer_paused")), "the pause")
        row = state_of(app)
        assert (row.paused, row.live) == (PauseReason.ASKED, False)
        assert "by alice@desk since" in row.detail
        assert "the warehouse is closed" in row.detail
        until(lambda: app._crews["points"].consumer.scheduler.waiting() == 0, "an empty queue")
        assert shop.effects() == []
        assert shop.resume() == ["points"]
        until(lambda: shop.effects() == [1, 2, 3], "three effects")
        assert state_of(app).live
    assert heard.of("consumer_resumed")


def test_a_pause_lets_what_runs_finish_and_returns_the_rest_to_the_broker(shop: Shop) -> None:
    """Nothing is held by a paused process, and no attempt is counted."""
    shop.go.clear()
    with running(shop.plan(batch_limit=1)) as app:
        publish(shop.folder, 1)
        assert shop.begun.wait(WAIT)
        publish(shop.folder, 2, 3, 4)
        consumer = app._crews["points"].consumer
        until(lambda: consumer.scheduler.waiting() == 3, "three waiting messages")
        shop.pause()
        until(lambda: state_of(app).paused is PauseReason.ASKED, "the pause")
        shop.go.set()
        until(lambda: shop.effects() == [1], "the running one")
        until(lambda: state_of(app).in_flight == 0, "an empty process")
        other = broker(shop.folder)
        other.prepare([consumer.plan.subscription])
        assert other.depth(consumer.plan.subscription) == 3
        assert shop.resume() == ["points"]
        until(lambda: shop.effects() == [1, 2, 3, 4], "the rest, once")


def test_neither_kind_of_pause_ends_the_other(engine: Engine) -> None:
    """A breaker's pause stays when the operator's ends, and the other way round; one that is over is not in force."""
    with engine.begin() as connection:
        now = server_time(connection)
        pauses.begin(connection, Pause("shop.a", OPERATOR, "alice", "why", now))
        pauses.begin(connection, Pause("shop.a", BREAKER, "failures", "", now, now + timedelta(hours=1)))
        pauses.begin(connection, Pause("shop.b", BREAKER, "failures", "", now, now - timedelta(hours=1)))
    with engine.begin() as connection:
        assert [each.kind for each in pauses.of(connection, ["shop.a", "shop.b"])["shop.a"]] == [
            OPERATOR,
            BREAKER,
        ]
        assert "shop.b" not in pauses.of(connection, ["shop.a", "shop.b"])
        assert pauses.end(connection, "shop.a", OPERATOR)
        assert not pauses.end(connection, "shop.a", OPERATOR)
        assert [each.kind for each in pauses.of(connection, ["shop.a"])["shop.a"]] == [BREAKER]


@pytest.fixture
def engine(database_url: str) -> Any:
    """A database of each kind with a ledger."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()
