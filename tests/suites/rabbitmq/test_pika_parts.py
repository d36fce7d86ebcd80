"""The adapter with all private parts of pika that it uses, and as with a release of pika that has none of them."""

from collections.abc import Iterator
from datetime import timedelta
from queue import Queue
from typing import Any

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerError
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rabbitmq.connection import pika_connection as connection
from oncemq_adapters.rabbitmq.connection.address import parse_address
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.connection.pika_connection import Connection
from support.brokers.rabbitmq import adapter_on
from unit.adapters.rabbitmq.connection.test_pika_connection import Reading, delivery

PARTS = ("RECEIVING_PART", "CUTTING_PART", "BLOCKING_PART", "SOCKET_PART")


@pytest.fixture(params=[True, False], ids=["with", "without"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether pika has the parts."""
    if not request.param:
        monkeypatch.setattr(connection, "READING_PARTS", ("_gone",))
        for name in PARTS:
            monkeypatch.setattr(connection, name, "_gone")
    return bool(request.param)


class Noting:
    """A listener that tells what it is told."""

    def __init__(self) -> None:
        self.told: Queue[str] = Queue()

    def before_connecting(self) -> None:
        """Do nothing."""

    def connected(self, _: Any) -> None:
        """Note it."""
        self.told.put("connected")

    def disconnected(self, _: BrokerError) -> None:
        """Note it."""
        self.told.put("disconnected")


@pytest.fixture
def link(rabbitmq_url: str) -> Iterator[tuple[Link, Noting]]:
    """A connection that is kept alive."""
    listener = Noting()
    link = Link(parse_address(rabbitmq_url, {}), "tests", listener)
    link.start()
    yield link, listener
    link.stop(timedelta(seconds=5))


def test_messages_are_read_and_settled(parts: bool, rabbitmq_url: str, fresh: str) -> None:
    """Each arrives once, in order, and none is left."""
    del parts
    adapter, sink = adapter_on(rabbitmq_url), RecordingSink()
    subscription = Subscription("points", fresh, fresh)
    adapter.prepare([subscription])
    adapter.publish(fresh, {}, [OutgoingMessage(b"%d" % number) for number in range(50)])
    adapter.open([subscription], sink)
    deliveries = sink.wait_for(50)
    assert [delivery.message.body for delivery in deliveries] == [b"%d" % number for number in range(50)]
    assert not adapter.acknowledge(deliveries)
    adapter.close(grace=timedelta(seconds=5))
    looking = adapter_on(rabbitmq_url)
    assert looking.depth(subscription) == 0
    looking.close(grace=timedelta(seconds=5))


def test_a_connection_that_is_given_up_is_made_again(parts: bool, link: tuple[Link, Noting]) -> None:
    """Without waiting for a peer that may not answer."""
    kept, listener = link
    assert listener.told.get(timeout=30) == "connected"
    kept.post(lambda: kept.abandon("a test"))
    assert [listener.told.get(timeout=30) for _ in range(2)] == ["disconnected", "connected"]
    del parts


def test_what_comes_together_comes_one_by_one_without_them(parts: bool) -> None:
    """Pika reads each delivery itself, and its end is told at once."""
    reading, told = Reading(Connection), []

    def note(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        told.append(method.delivery_tag)
        reading.connection.after_reading(lambda: told.append("end"))

    reading.connection._channels[1]._consumers["points"] = note
    reading.read([delivery(b"x", tag=1) + delivery(b"x", tag=2)])
    assert told == ([1, 2, "end", "end"] if parts else [1, "end", 2, "end"])


def test_a_channel_without_them_is_left_to_pika() -> None:
    """A delivery of a channel that keeps its consumers elsewhere is not read whole."""
    reading = Reading(Connection)
    reading.connection._channels[1] = object()
    assert reading.connection._deliver_whole(delivery(b"x")) == 0


def test_descriptors_are_those_of_the_socket(parts: bool, link: tuple[Link, Noting]) -> None:
    """Forked processes are cut off from them; where pika does not show its socket, they are not."""
    connected, listener = link
    assert listener.told.get(timeout=10) == "connected"
    assert len(connected._descriptors()) == (1 if parts else 0)
