"""Short ways to an embedded adapter, for tests that look behind the contract."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Confirmed, Subscription
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.embedded import EmbeddedAdapter

SUBSCRIPTION = Subscription("consumer", "topic", "group")


def build(url: str, **options: object) -> EmbeddedAdapter:
    """Return an adapter that is not open."""
    return EmbeddedAdapter.build(url, options, AdapterScope("app", "broker", SystemClock()))


def url_of(path: Path) -> str:
    """Return the URL of a broker in this file."""
    return f"embedded:///{path}"


@contextmanager
def consuming(
    path: Path, *subscriptions: Subscription, **options: object
) -> Iterator[tuple[EmbeddedAdapter, RecordingSink]]:
    """Lend an open adapter and its sink."""
    adapter, sink = build(url_of(path), **options), RecordingSink()
    try:
        adapter.open(subscriptions or (SUBSCRIPTION,), sink)
        yield adapter, sink
    finally:
        adapter.close(grace=timedelta(seconds=1))


@contextmanager
def publishing(path: Path, **options: object) -> Iterator[EmbeddedAdapter]:
    """Lend an adapter that is prepared for publishing."""
    adapter = build(url_of(path), **options)
    try:
        adapter.prepare([])
        yield adapter
    finally:
        adapter.close(grace=timedelta(seconds=1))


def publish(adapter: EmbeddedAdapter, *bodies: bytes, topic: str = "topic") -> None:
    """Publish and insist on confirmation."""
    answers = adapter.publish(topic, {}, [OutgoingMessage(body) for body in bodies])
    assert all(isinstance(answer, Confirmed) for answer in answers), answers


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Return what the file says, by a connection of its own."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def eventually(reached: Callable[[], bool], wanted: str, timeout: float = 10.0) -> None:
    """Wait until `reached()`; for states that no one signals."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s for {wanted}"
        pause.wait(0.01)
