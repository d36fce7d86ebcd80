"""Pulls: where a queue goes on after an answer that brings nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from structlog.testing import capture_logs

from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.consumer.puller import Puller
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part, Subscriptions
from oncemq_adapters.rocketmq.sealed_copies import sealed
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.properties import to_text
from support.brokers.stored import stored


class Connection:
    """Keeps whom to answer."""

    def __init__(self) -> None:
        self.waiting: list[Callable[..., None]] = []

    def alive(self) -> Mapping[str, Any]:
        """Return this one connection."""
        return {"b": self}

    def submit(self, _code: int, _fields: Any, done: Callable[..., None]) -> None:
        """Keep it."""
        self.waiting.append(done)


def test_offsets_that_the_broker_does_not_have_are_said() -> None:
    """It deleted them for their age before we came, or lost them: no one will ever see those messages."""
    connection: Any = Connection()
    unused: Any = None
    queue = ProcessQueue(("t", "b", 0), 1)
    queue.begin(3, 3, ())
    window = PrefetchWindow("c", "t", "g", 1, unused)
    parts = Subscriptions({"t": Part(parse_topic("t", {}, ""), window)})
    puller = Puller(connection, "g", 1, parts, unused, one_by_one=False)
    puller.pull(queue)
    with capture_logs() as logs:
        moved = Denied("b", codes.PULL_OFFSET_MOVED, "", {"nextBeginOffset": "7"})
        connection.waiting.pop()(moved, {}, b"")
    assert queue.next == 7
    [entry] = logs
    assert (entry["log_level"], entry["asked"], entry["goes_on_at"]) == ("warning", 3, 7)


def test_a_retry_that_holds_its_message_whole_is_opened() -> None:
    """A message whose properties left no room for our marks travels in the body of its copy."""
    properties, body = sealed({"RETRY_TOPIC": "t", "KEYS": "k-1"}, b"whole")
    data = stored(body, text=to_text(properties), topic="%RETRY%g", offset=0)
    connection, sink = Connection(), RecordingSink()
    unused: Any = None
    queue = ProcessQueue(("%RETRY%g", "b", 0), 1)
    queue.begin(0, 0, ())
    parts = Subscriptions({"t": Part(parse_topic("t", {}, ""), PrefetchWindow("c", "t", "g", 1, sink))})
    brokers: Any = connection
    Puller(brokers, "g", 1, parts, unused, one_by_one=False).pull(queue)
    connection.waiting.pop()(None, {"nextBeginOffset": "1"}, data)
    (delivery,) = sink.wait_for(1)
    assert (delivery.message.body, delivery.message.keys) == (b"whole", ("k-1",))
