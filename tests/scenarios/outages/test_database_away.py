"""The database dies under a running app and comes back: no one is charged, nothing is lost, nothing happens twice."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.ledger.database.engine import make_engine
from oncemq.observe.events import Observer
from oncemq.observe.state import PauseReason
from oncemq.testing.scripted import ScriptedAdapter
from oncemq_strategies.unique_key.strategy import UniqueKey
from support.effects import Base, effects, empty, give
from support.engine import make_app, make_consumer, running
from support.servers import OwnServer
from support.units import build


class Pauses(Observer):
    """Signals that a consumer paused, why, and that it resumed."""

    def __init__(self) -> None:
        self.paused = threading.Event()
        self.resumed = threading.Event()
        self.reasons: set[PauseReason] = set()

    def consumer_paused(
        self,
        consumer: str,
        reason: PauseReason,
        *,
        retry_in: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Signal it."""
        self.reasons.add(reason)
        self.paused.set()

    def consumer_resumed(self, consumer: str, *, after: timedelta) -> None:
        """Signal it."""
        self.resumed.set()


def handler(order: dict[str, Any], session: Session) -> None:
    """Leave one effect."""
    give(session, order)


@pytest.fixture
def server(own_postgresql: OwnServer) -> Any:
    """A PostgreSQL of the test's own."""
    return own_postgresql()


def prepared(url: str) -> Engine:
    """Return an engine on a database with the tests' tables."""
    engine = make_engine(url)
    Base.metadata.create_all(engine)
    empty(engine)
    return engine


def deliver(adapter: ScriptedAdapter, first: int, last: int) -> None:
    """Deliver the orders `first` to `last - 1`, of ten keys."""
    for number in range(first, last):
        adapter.deliver(json.dumps({"id": str(number), "key": f"k{number % 10}"}).encode())


def test_an_outage_pauses_and_charges_no_message(server: Any) -> None:
    """A killed database pauses the consumer; after its restart every message takes effect once, at its first attempt."""
    engine, adapter, pauses = prepared(server.url), ScriptedAdapter(), Pauses()
    plan = make_app(adapter, engine, make_consumer(handler, [build(UniqueKey, engine, "points")], workers=2))
    with running(plan, observers=[pauses]):
        deliver(adapter, 0, 100)
        adapter.wait_until(lambda one: len(one.acknowledged) >= 20, 30)
        server.kill()
        deliver(adapter, 100, 200)
        assert pauses.paused.wait(60)
        server.start()
        adapter.wait_until(lambda one: len(one.acknowledged) == 200, 90)
        assert pauses.resumed.wait(10)
        assert effects_of(server.url) == sorted(map(str, range(200)))
    assert pauses.reasons == {PauseReason.DATABASE}
    assert (adapter.retried, adapter.dead, adapter.refused) == ([], [], [])


def effects_of(url: str) -> list[str]:
    """Return the ids of orders that took effect, sorted, over a connection of one's own."""
    engine = make_engine(url)
    try:
        return sorted(effects(engine))
    finally:
        engine.dispose()
