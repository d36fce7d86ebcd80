"""An adapter on a real RabbitMQ and short ways to it, for tests of what RabbitMQ is known to do."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import pika
import pytest

from oncemq.contracts.adapter import (
    Adapter,
    Subscription,
)
from oncemq.message.envelope import Delivery
from oncemq.testing.recording_sink import RecordingSink
from support.brokers.rabbitmq import adapter_on, connect

SOON = timedelta(milliseconds=100)


GRACE = timedelta(seconds=5)


Open = Callable[..., tuple[Adapter, RecordingSink]]


@pytest.fixture
def open_adapter() -> Iterator[Open]:
    """Open adapters that are closed when the test ends."""
    opened: list[Adapter] = []

    def start(url: str, *subscriptions: Subscription, **options: Any) -> tuple[Adapter, RecordingSink]:
        adapter, sink = adapter_on(url, **options), RecordingSink()
        opened.append(adapter)
        adapter.open(subscriptions, sink)
        return adapter, sink

    yield start
    for adapter in opened:
        adapter.close(grace=GRACE)


def subscription_of(fresh: str, *, in_flight: int = 1000, **options: Any) -> Subscription:
    """Return a subscription with names that no one else uses."""
    return Subscription("points", f"{fresh}.paid", f"{fresh}-group", options, in_flight)


def properties_of(delivery: Delivery) -> pika.BasicProperties:
    """Return the properties as the broker sent them."""
    found = pika.BasicProperties()
    found.decode(delivery.message.raw or b"")
    return found


def put(url: str, queue: str, *bodies: bytes, **properties: Any) -> None:
    """Put messages straight into a queue, as a foreign producer does."""
    connection = connect(url)
    for body in bodies:
        connection.channel().basic_publish("", queue, body, pika.BasicProperties(**properties))
    connection.close()


def eventually(reached: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until `reached()`; for states that no one signals."""
    deadline = monotonic() + seconds
    while not reached():
        assert monotonic() < deadline
        Event().wait(0.02)


def is_subscribed(adapter: Adapter) -> bool:
    """Return whether all consumers are subscribed."""
    return all(row.subscribed for row in adapter.health())
