"""Records of the message trace: as Java's client writes them, and no burden to what they trace."""

from collections.abc import Sequence

from structlog.testing import capture_logs

from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq.message.envelope import Delivery, Message
from oncemq_adapters.rocketmq.remoting.consumer import message_trace
from oncemq_adapters.rocketmq.remoting.consumer.message_trace import MessageTrace
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import Token
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage


class Broker:
    """Keeps what is sent, or refuses it."""

    def __init__(self, error: BrokerError | None = None) -> None:
        self.sent: list[Outgoing] = []
        self.error = error

    def send(self, messages: Sequence[Outgoing]) -> Sequence[BrokerError | None]:
        """Take messages."""
        self.sent += messages
        return [self.error for _ in messages]


def trace_to(broker: Broker) -> MessageTrace:
    """Return a trace that was not started."""
    return MessageTrace("trace", "ns", broker.send, lambda: "ID")


def delivery(**properties: str) -> Delivery:
    """Return a delivery of a message with these properties."""
    stored = StoredMessage("t", b"x", properties, 7, 1, 1, 2, 0)
    window: object = None
    token = Token(window, ProcessQueue(("t", "b", 0), 1), stored)  # type: ignore[arg-type]
    return Delivery(Message("t", b"x"), token)


def test_a_delivery_is_two_records_of_java() -> None:
    """When it was handed over, and how it ended; under its id and keys, the group without its namespace."""
    broker = Broker()
    trace = trace_to(broker)
    traced = delivery(UNIQ_KEY="AB", KEYS="k1 k2", MSG_REGION="r")
    trace.began([traced])
    trace.ended("ns%g", [traced], fine=False)
    trace.flush()
    (sent,) = broker.sent
    assert (sent.topic, sent.properties) == (
        "trace",
        {"UNIQ_KEY": "ID", "KEYS": "AB k1 k2", "TAGS": "trace"},
    )
    before, after, rest = sent.body.decode().split("\x02")
    kind, at, region, group, request, named, tries, keys = before.split("\x01")
    assert (kind, region, group, named, tries, keys) == ("SubBefore", "r", "g", "AB", "2", "k1 k2")
    assert after.split("\x01")[:3] == ["SubAfter", request, "AB"]
    assert after.split("\x01")[4:7] == ["false", "k1 k2", "4"]
    assert (at.isdigit(), rest) == (True, "")


def test_what_the_producer_excludes_is_not_traced() -> None:
    """Nor is a message without an id, or with one that no client of RocketMQ gives."""
    broker = Broker()
    trace = trace_to(broker)
    excluded = [delivery(UNIQ_KEY="A", TRACE_ON="false"), delivery(), delivery(UNIQ_KEY="x" * 65)]
    trace.ended("g", excluded, fine=True)
    trace.flush()
    assert broker.sent == []


def test_a_trace_that_cannot_be_sent_is_dropped_and_said_once() -> None:
    """It fills no memory, and the next one is tried again."""
    broker = Broker(BrokerUnavailable("away"))
    trace = trace_to(broker)
    with capture_logs() as logged:
        for _ in range(3):
            trace.ended("g", [delivery(UNIQ_KEY="A"), delivery(UNIQ_KEY="B")], fine=True)
            trace.flush()
    assert [(entry["event"], entry["records"]) for entry in logged] == [
        ("records of the message trace were dropped", 2)
    ]
    broker.error = None
    trace.ended("g", [delivery(UNIQ_KEY="C")], fine=True)
    trace.flush()
    assert broker.sent[-1].properties["KEYS"] == "C"


def test_many_records_are_few_messages_and_never_too_many() -> None:
    """Fifty together; above the bound the newest are dropped."""
    broker = Broker()
    trace = trace_to(broker)
    message_trace.MOST_WAITING, most = 120, message_trace.MOST_WAITING
    try:
        with capture_logs() as logged:
            trace.ended("g", [delivery(UNIQ_KEY=str(number)) for number in range(130)], fine=True)
            trace.flush()
    finally:
        message_trace.MOST_WAITING = most
    assert len(broker.sent) == 3
    assert [entry["records"] for entry in logged] == [10]
