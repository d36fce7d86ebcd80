"""Administers a topic's queues on RocketMQ, as an operator would while consumers run."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from oncemq.contracts.adapter import Adapter, Subscription
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.codes import TEMPLATE
from oncemq_adapters.rocketmq_client.connections import spread_of
from oncemq_adapters.rocketmq_client.properties import to_text
from oncemq_adapters.rocketmq_client.protocol import Outgoing, send_fields
from services.servers.rocketmq import BROKER, RocketMQPair

_NEW_TOPIC = {
    "defaultTopic": TEMPLATE,
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "+message.type=NORMAL",
    "force": "false",
}


class QueueConsole:
    """Changes how many queues a topic has, and publishes to chosen ones.

    Args:
        desk: connections of its own.
    """

    def __init__(self, desk: Operations) -> None:
        self.desk = desk

    def set_queues(self, topic: str, count: int) -> None:
        """Give a topic so many queues on each broker that has it; returns when the name server says so.

        Args:
            topic: by its real name.
            count: read and written.
        """
        fields = {**_NEW_TOPIC, "topic": topic, "readQueueNums": str(count), "writeQueueNums": str(count)}
        brokers = {name for name, _ in self.desk.routes.ask(topic).readable}
        for broker in brokers:
            self.desk.brokers.get(broker).call(codes.UPDATE_TOPIC, fields)
        while len(self.desk.routes.ask(topic).readable) != count * len(brokers):
            pass

    def extend(self, topic: str, broker: str, count: int) -> None:
        """Give a topic so many queues on one broker; returns when the name server says so."""
        fields = {**_NEW_TOPIC, "topic": topic, "readQueueNums": str(count), "writeQueueNums": str(count)}
        self.desk.brokers.get(broker).call(codes.UPDATE_TOPIC, fields)
        while (broker, count - 1) not in self.desk.routes.ask(topic).readable:
            pass

    def fill(self, topic: str, numbers: Iterable[int], body: bytes, each: int = 1) -> None:
        """Publish `each` messages with this body to every queue of these numbers."""
        places = [place for place in self.desk.routes.ask(topic).readable if place[1] in set(numbers)]
        messages = [
            Outgoing(topic, body, {"UNIQ_KEY": self.desk.producer.unique_id()}, place)
            for place in places
            for _ in range(each)
        ]
        assert not any(self.desk.producer.send(messages))

    def fill_on(self, topic: str, broker: str, body: bytes, each: int) -> None:
        """Publish `each` messages with this body to every queue on one broker."""
        places = [place for place in self.desk.routes.ask(topic).readable if place[0] == broker]
        messages = [
            Outgoing(topic, body, {"UNIQ_KEY": self.desk.producer.unique_id()}, place)
            for place in places
            for _ in range(each)
        ]
        assert not any(self.desk.producer.send(messages))

    def put_raw(self, topic: str, number: int, body: bytes, flags: int, *, born: int | None = None) -> None:
        """Store a body as it is, with system flags that say how it is packed, as if sent at `born`."""
        (broker, _) = next(place for place in self.desk.routes.ask(topic).readable if place[1] == number)
        message = Outgoing(topic, body, {"UNIQ_KEY": self.desk.producer.unique_id()})
        if born is not None:
            message = replace(message, born=born)
        fields = send_fields("tests-queues", message, number, flags, to_text(message.properties))
        self.desk.brokers.get(broker).call(codes.SEND_MESSAGE, fields, body)


HOSTILE: Mapping[str, dict[str, str]] = {
    "retry of another topic": {"RETRY_TOPIC": "refunds", "REAL_TOPIC": "refunds", "REAL_QID": "7"},
    "dead letter of another topic": {"DLQ_ORIGIN_TOPIC": "refunds", "DLQ_ORIGIN_MESSAGE_ID": "0"},
    "tried before": {"RECONSUME_TIME": "99", "MAX_RECONSUME_TIMES": "1", "oncemq-attempt": "99"},
    "born in another age": {"BORN_TIMESTAMP": "9" * 18, "oncemq-published-at": "9999-12-31T23:59:59+00:00"},
    "mark of ours": {"TAGS": "oncemq-removed", "KEYS": "one"},
    "id of another": {"ORIGIN_MESSAGE_ID": "0" * 32, "MSG_REGION": "x", "TRACE_ON": "false"},
    "no JSON": {"oncemq-headers": "{", "oncemq-keys": "[", "oncemq-sealed": "1"},
    "near the limit": {"long": "x" * 32_000},
    "many": {f"p{number}": "v" for number in range(200)},
    "odd names": {"a b": "\n", "\u00e9": "\u2028", "oncemq-": "x"},
}
"""System properties of RocketMQ that any producer may set, and others that are hard to copy, by the messages' bodies."""


def send_hostile(url: str, topic: str) -> Sequence[bytes]:
    """Store messages with properties that only RocketMQ's own protocol lets a producer write; returns their bodies.

    They lie in the queue of the key "one", with whose messages the suite has them delivered.

    Args:
        url: of the name server.
        topic: by its real name.
    """
    with queue_console(url) as console:
        places = console.desk.routes.ask(topic).writable
        broker, queue = places[spread_of("one", len(places))]
        for name, properties in HOSTILE.items():
            named = {"UNIQ_KEY": console.desk.producer.unique_id(), **properties}
            message = Outgoing(topic, name.encode(), named)
            fields = send_fields("tests-hostile", message, queue, 0, to_text(named))
            console.desk.brokers.get(broker).call(codes.SEND_MESSAGE, fields, message.body)
    return [name.encode() for name in HOSTILE]


@contextmanager
def queue_console(url: str) -> Iterator[QueueConsole]:
    """Connect, and disconnect at the end."""
    desk = Operations(parse_address(url, {}), "tests-queues")
    try:
        yield QueueConsole(desk)
    finally:
        desk.close(1.0)


def assert_joining_broker_is_read(servers: RocketMQPair, make_adapter: Callable[[], Adapter]) -> None:
    """A broker joins while a group with `start: last` runs: what its queues get before the group sees them is delivered.

    Args:
        servers: two brokers, of the test's own.
        make_adapter: of the driver, on these servers, without a namespace.
    """
    topic = f"joining-{uuid4().hex[:8]}"
    late = Subscription("points", topic, f"{topic}-points", {"queues": 4, "start": "last"})
    servers.start()
    with queue_console(servers.url) as console:
        servers.kill_only(f"{BROKER}-b")
        while len(console.desk.routes.brokers()) != 1:
            pass
        (first,) = console.desk.routes.brokers()
        other = make_adapter()
        other.prepare([replace(late, group=f"{topic}-other")])
        console.fill(topic, range(4), b"old")
        adapter, sink = make_adapter(), RecordingSink()
        adapter.open([late], sink)
        try:
            servers.start()
            while len(console.desk.routes.brokers()) != 2:
                pass
            (second,) = set(console.desk.routes.brokers()) - {first}
            console.extend(topic, second, 4)
            console.fill_on(topic, second, b"new", 5)
            came = sink.wait_for(20, 120)
            assert [delivery.message.body for delivery in came] == [b"new"] * 20
            assert not adapter.acknowledge(came)
        finally:
            adapter.close(grace=timedelta(seconds=5))
            other.close(grace=timedelta(seconds=1))
