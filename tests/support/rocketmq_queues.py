"""Administers a topic's queues on RocketMQ, as an operator would while consumers run."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.properties import to_text
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.protocol import codes
from oncemq_adapters.rocketmq.remoting.protocol.codes import TEMPLATE
from oncemq_adapters.rocketmq.remoting.protocol.send_request import Outgoing, send_fields


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
        fields = {
            "topic": topic,
            "defaultTopic": TEMPLATE,
            "readQueueNums": str(count),
            "writeQueueNums": str(count),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "+message.type=NORMAL",
            "force": "false",
        }
        brokers = {name for name, _ in self.desk.routes.ask(topic).readable}
        for broker in brokers:
            self.desk.brokers.get(broker).call(codes.UPDATE_TOPIC, fields)
        while len(self.desk.routes.ask(topic).readable) != count * len(brokers):
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

    def put_raw(self, topic: str, number: int, body: bytes, flags: int) -> None:
        """Store a body as it is, with system flags that say how it is packed."""
        (broker, _) = next(place for place in self.desk.routes.ask(topic).readable if place[1] == number)
        message = Outgoing(topic, body, {"UNIQ_KEY": self.desk.producer.unique_id()})
        fields = send_fields("tests-queues", message, number, flags, to_text(message.properties))
        self.desk.brokers.get(broker).call(codes.SEND_MESSAGE, fields, body)


@contextmanager
def queue_console(url: str) -> Iterator[QueueConsole]:
    """Connect, and disconnect at the end."""
    desk = Operations(parse_address(url, {}), "tests-queues")
    try:
        yield QueueConsole(desk)
    finally:
        desk.close(1.0)
