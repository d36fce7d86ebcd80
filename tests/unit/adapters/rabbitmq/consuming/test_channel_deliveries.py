"""One channel's deliveries: handed over as they came together, and not at all when the channel is gone by then."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pika import BasicProperties

from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Intake


class Reading:
    """A channel that reads what a test says, and an intake for it."""

    def __init__(self) -> None:
        self.sink = RecordingSink()
        self._calls: list[Callable[[], None]] = []
        channel: Any = SimpleNamespace(connection=SimpleNamespace(after_reading=self._calls.append))
        place: Any = SimpleNamespace(topic=SimpleNamespace(topic="orders", routing_keys=()))
        link: Any = None
        self.intake = Intake(place, "points", 1, channel, link, 10, self.sink)

    def come(self, *tags: int) -> None:
        """Have messages come together."""
        for tag in tags:
            method = SimpleNamespace(delivery_tag=tag, redelivered=False, exchange="")
            self.intake.on_message(None, method, BasicProperties(), b"%d" % tag)

    def end(self) -> int:
        """Read to the end; return how many callbacks that took."""
        calls = list(self._calls)
        self._calls.clear()
        for call in calls:
            call()
        return len(calls)


def test_what_came_together_is_handed_over_together() -> None:
    """One call for all, in order, and none before all are read."""
    reading = Reading()
    reading.come(1, 2, 3)
    assert reading.sink.bodies() == []
    assert reading.end() == 1
    assert reading.sink.bodies() == [b"1", b"2", b"3"]


def test_what_comes_next_is_handed_over_next() -> None:
    """Nothing is handed over twice."""
    reading = Reading()
    reading.come(1)
    reading.end()
    reading.come(2)
    assert reading.end() == 1
    assert reading.sink.bodies() == [b"1", b"2"]


def test_nothing_of_a_channel_that_is_gone_is_handed_over() -> None:
    """RabbitMQ redelivers it; no one would be told a second time that it is void."""
    reading = Reading()
    reading.come(1)
    reading.intake.alive = False
    reading.end()
    assert reading.sink.bodies() == []
