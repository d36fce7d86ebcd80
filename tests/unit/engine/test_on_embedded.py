"""Tests of the engine on a broker that really redelivers: attempts counted over the hops, and how much is taken."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, DeadLetter, Subscription
from oncemq.errors import Reject
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records import history
from oncemq.message import headers
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.embedded import EmbeddedAdapter
from support.engine import make_app, make_consumer, running

WAIT = 20.0


@pytest.fixture
def adapter(tmp_path: Path) -> EmbeddedAdapter:
    """A broker in a file."""
    return broker(tmp_path)


def broker(folder: Path) -> EmbeddedAdapter:
    """Return an adapter on the test's broker; each lives once."""
    scope = AdapterScope(app="shop", broker="main", clock=SystemClock())
    return EmbeddedAdapter.build(f"embedded:///{folder / 'broker.db'}", {}, scope)


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database with a table of points."""
    engine = make_engine(sqlite_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE points (id INTEGER)"))
    yield engine
    engine.dispose()


class Handler:
    """Inserts a row, remembers every call, and then does what the test wants."""

    def __init__(self, then: Callable[[int], None]) -> None:
        self._then = then
        self._changed = threading.Condition()
        self.calls: list[int] = []

    def __call__(self, order: dict, session: Session) -> None:
        """Handle one message."""
        with self._changed:
            self.calls.append(order["id"])
            self._changed.notify_all()
        session.execute(text("INSERT INTO points VALUES (:id)"), {"id": order["id"]})
        self._then(len(self.calls))

    def wait_for(self, count: int) -> None:
        """Wait for so many calls."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, WAIT)


def publish(folder: Path, *numbers: int) -> None:
    """Publish one message for each number, each with a key of its own."""
    sender = broker(folder)
    subscription = Subscription("points", "orders", "points")
    sender.prepare([subscription])
    sender.publish(
        "orders",
        {},
        [OutgoingMessage(json.dumps({"id": number, "key": f"k{number}"}).encode()) for number in numbers],
    )
    sender.close(grace=timedelta(seconds=1))


def buried(folder: Path, count: int) -> list[DeadLetter]:
    """Wait for so many dead letters and return them."""
    looker, pause = broker(folder), threading.Event()
    subscription = Subscription("points", "orders", "points")
    looker.prepare([subscription])
    try:
        for _ in range(int(WAIT / 0.05)):
            found = list(looker.dead_letters(subscription, 100))
            if len(found) >= count:
                return found
            pause.wait(0.05)
    finally:
        looker.close(grace=timedelta(seconds=1))
    raise AssertionError(f"{len(found)} dead letters instead of {count}")


def give_up(_calls: int) -> None:
    """Fail always."""
    raise ValueError("the warehouse is full")


def test_a_failing_message_is_tried_exactly_as_often_as_said(
    adapter: EmbeddedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """Three attempts are three calls; the dead letter tells of the last one, and of when it all began."""
    publish(tmp_path, 1)
    handler = Handler(give_up)
    with running(make_app(adapter, engine, make_consumer(handler))):
        [letter] = buried(tmp_path, 1)
    assert handler.calls == [1, 1, 1]
    cause = letter.message.headers
    assert cause[headers.REASON] == "attempts-exhausted"
    assert cause[headers.ATTEMPT] == "3"
    assert cause[headers.ERROR_TEXT] == "ValueError: the warehouse is full"
    assert cause[headers.KEY] == "k1"
    assert cause[headers.ORIGIN_TOPIC] == "orders"
    assert cause[headers.PUBLISHED_AT] < cause[headers.FIRST_FAILED_AT] < cause[headers.LAST_FAILED_AT]
    assert json.loads(letter.message.body) == {"id": 1, "key": "k1"}


def test_a_message_that_fails_once_takes_effect_once(
    adapter: EmbeddedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """The failed try leaves nothing behind, the second one is applied."""

    def fail_first(calls: int) -> None:
        if calls == 1:
            raise ValueError("not yet")

    publish(tmp_path, 1)
    handler = Handler(fail_first)
    with running(make_app(adapter, engine, make_consumer(handler))):
        handler.wait_for(2)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM points")).scalars().all() == [1]


def test_a_dead_letter_is_noted_in_the_history(
    adapter: EmbeddedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """Anyone who asks for the key later finds when and why."""

    def reject(_calls: int) -> None:
        raise Reject("sold out")

    publish(tmp_path, 7)
    with running(make_app(adapter, engine, make_consumer(Handler(reject)))):
        buried(tmp_path, 1)
    with engine.connect() as connection:
        [row] = history.of_key(connection, "k7")
    assert (row.consumer, row.outcome, row.reason) == ("shop.points", "rejected", "sold out")


def test_no_more_is_taken_than_may_be_in_flight(
    adapter: EmbeddedAdapter, engine: Engine, tmp_path: Path
) -> None:
    """A handler that is blocked lets ten messages pile up in this process, and ninety at the broker."""
    go_on = threading.Event()
    publish(tmp_path, *range(100))
    handler = Handler(lambda _calls: go_on.wait(WAIT) and None)
    consumer = make_consumer(handler)
    limited = Subscription("points", "orders", "points", in_flight=10)
    consumer = replace(consumer, subscription=limited)
    with running(make_app(adapter, engine, consumer)) as app:
        handler.wait_for(1)
        pause = threading.Event()
        counts = []
        for _ in range(20):
            counts.append(app.state().consumers[0].in_flight)
            pause.wait(0.02)
        go_on.set()
        handler.wait_for(100)
    assert max(counts) <= 10
    assert sorted(handler.calls) == list(range(100))


def test_an_isolated_consumer_shares_no_transaction(
    tmp_path: Path, adapter: EmbeddedAdapter, engine: Engine
) -> None:
    """`isolate: true`: each call commits alone, whatever is waiting."""
    ready, seen, uncommitted = threading.Event(), set[int](), set[int]()
    count = text("SELECT count(*) FROM points")

    def handle(order: dict, session: Session) -> None:
        session.execute(text("INSERT INTO points (id) VALUES (:id)"), {"id": order["id"]})
        with engine.connect().execution_options(oncemq_read_only=True) as other:
            uncommitted.add((session.scalar(count) or 0) - (other.scalar(count) or 0))
        seen.add(order["id"])
        if len(seen) == 10:
            ready.set()

    publish(tmp_path, *range(1, 11))
    with running(make_app(adapter, engine, make_consumer(handle, isolate=True))):
        assert ready.wait(WAIT)
    assert uncommitted == {1}
