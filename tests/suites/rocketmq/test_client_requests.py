"""Requests of RocketMQ's client alone, answered by hand: by which reply, over which connection, and what nothing is waited for."""

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest

from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from oncemq_adapters.rocketmq_client import (
    Client,
    Cluster,
    Denied,
    NoReply,
    Outgoing,
    Reply,
    RocketMQUnavailable,
    codes,
)
from oncemq_adapters.rocketmq_client.protocol.connection import Connection
from oncemq_adapters.rocketmq_client.protocol.heartbeat import producer_heartbeat_body
from suites.rocketmq.test_client import cluster_of
from support.apps.program import eventually
from support.brokers.rocketmq import broker_address

ZLIB = 0x301
WAIT = timedelta(seconds=30)


class Desk:
    """A client that asks, one that answers by hand, and the door between the first one and the broker.

    Args:
        url: of the name server.
    """

    def __init__(self, url: str) -> None:
        broker = broker_address(url)
        self.door = TcpProxy(LOOPBACK, int(broker.rpartition(":")[2]))
        plain = cluster_of(url)
        self.cluster, self.broker = plain, broker
        through = Cluster(
            name_servers=plain.name_servers,
            username=plain.username,
            password=plain.password,
            addresses={broker: self.door.address},
        )
        self.topic = f"asked-{uuid4().hex[:8]}"
        self.hand = Client(plain, group="hand")
        self.hand.create_topic(self.topic, queues=1)
        self.client = Client(through, group=f"asks-{self.topic}")
        self.threads = ThreadPoolExecutor(4)
        self._offset = 0

    def ask(self, body: bytes, wait: timedelta = WAIT) -> "Future[Reply]":
        """Have a thread ask."""
        return self.threads.submit(self.client.request, Outgoing(self.topic, body, {}), wait)

    def next_request(self) -> dict[str, str]:
        """Return the properties of the next request."""
        (queue,) = self.hand.queues(self.topic)
        pull = self.hand.pull("hand", self.topic, queue, self._offset, most=1, wait=timedelta(seconds=20))
        self._offset = pull.following
        return pull.messages[0].properties

    def answer(self, asked: dict[str, str], body: bytes, packing: int = 0, **changed: str) -> bool:
        """Answer a request as Java does; returns whether the broker could push the reply."""
        (queue,) = self.hand.queues(self.topic)
        names = ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")
        properties = {name: asked[name] for name in names} | {"MSG_TYPE": "reply"} | changed
        topic = f"{asked['CLUSTER']}_REPLY_TOPIC"
        reply = Outgoing(topic, body, properties, (queue[0], 0), reply=True, packing=packing)
        (error,) = self.hand.send([reply])
        assert error is None or isinstance(error, Denied), error
        return error is None

    def close(self) -> None:
        """End it."""
        self.client.close()
        self.hand.close()
        self.threads.shutdown()
        self.door.close()


@pytest.fixture
def desk(rocketmq_url: str) -> Iterator[Desk]:
    """On the shared server."""
    desk = Desk(rocketmq_url)
    yield desk
    desk.close()


def test_a_request_gets_its_own_reply(desk: Desk) -> None:
    """Whatever else comes: a reply under another correlation id, one for the other request, and a second one."""
    first = desk.ask(b"a")
    earlier = desk.next_request()
    second = desk.ask(b"b")
    other = desk.next_request()
    assert earlier["REPLY_TO_CLIENT"] == other["REPLY_TO_CLIENT"]
    assert desk.answer(earlier, b"of a stranger", CORRELATION_ID="unknown")
    assert desk.answer(other, b"of b", mark="1")
    found = second.result(30)
    assert (found.body, found.properties["mark"], found.trouble) == (b"of b", "1", "")
    assert desk.answer(other, b"too late")
    assert desk.answer(earlier, b"of a")
    assert first.result(30).body == b"of a"


def test_a_packed_reply_is_unpacked(desk: Desk) -> None:
    """One that cannot be is handed over as it came, with the reason, and the connection stays."""
    packed = zlib.compress(b"x" * 10_000)
    for body, expected in ((packed, (b"x" * 10_000, "")), (b"no zlib", (b"no zlib", "cannot be unpacked"))):
        asked = desk.ask(b"a")
        assert desk.answer(desk.next_request(), body, ZLIB)
        found = asked.result(30)
        assert found.body == expected[0]
        assert expected[1] in found.trouble
        assert bool(found.trouble) == bool(expected[1])


def test_a_request_without_a_reply_ends_in_time(desk: Desk) -> None:
    """The error says that it may still take effect; its reply is taken and dropped when it comes after all."""
    with pytest.raises(NoReply, match="may still take effect"):
        desk.client.request(Outgoing(desk.topic, b"a", {}), timedelta(milliseconds=700))
    late = desk.next_request()
    assert desk.answer(late, b"late")
    asked = desk.ask(b"b")
    assert desk.answer(desk.next_request(), b"in time")
    assert asked.result(30).body == b"in time"


def test_no_time_at_all_sends_nothing(desk: Desk) -> None:
    """A request whose time is over before it is sent has no effect."""
    with pytest.raises(RocketMQUnavailable, match="was not sent"):
        desk.client.request(Outgoing(desk.topic, b"a", {}), timedelta(0))
    (queue,) = desk.hand.queues(desk.topic)
    assert desk.hand.pull("hand", desk.topic, queue, 0).messages == ()


def test_a_closed_client_ends_the_wait(desk: Desk) -> None:
    """Of a thread that would wait for half a minute."""
    asked = desk.ask(b"a")
    desk.next_request()
    desk.client.close()
    with pytest.raises(RocketMQUnavailable, match="closed"):
        asked.result(10)


@pytest.fixture
def pushed_again(desk: Desk) -> Callable[[dict[str, str]], None]:
    """Returns what answers again and again until the broker knows the requester."""
    return lambda asked: eventually(
        lambda: desk.answer(asked, b"patient"), "the requester's return", timeout=20
    )


def test_a_request_outlives_its_connection(
    desk: Desk, pushed_again: Callable[[dict[str, str]], None]
) -> None:
    """The client registers again, without being asked to, under the id that the request has said."""
    asked = desk.ask(b"a", timedelta(seconds=60))
    request = desk.next_request()
    desk.door.refuse()
    assert not desk.answer(request, b"lost")
    desk.door.accept()
    pushed_again(request)
    assert asked.result(30).body == b"patient"


def test_the_end_of_a_former_connection_is_mended(
    desk: Desk, pushed_again: Callable[[dict[str, str]], None]
) -> None:
    """A broker that notices it late forgets the client, which has registered by a new one meanwhile."""
    asked = desk.ask(b"a", timedelta(seconds=60))
    request = desk.next_request()
    former = Connection(desk.cluster, desk.broker, "broker")
    desk.door.cut()
    eventually(lambda: desk.answer(request, b"probe", CORRELATION_ID="a probe"), "the new connection")
    body = producer_heartbeat_body(request["REPLY_TO_CLIENT"], f"asks-{desk.topic}")
    former.call(codes.HEARTBEAT, {}, body)
    former.close()
    pushed_again(request)
    assert asked.result(30).body == b"patient"
