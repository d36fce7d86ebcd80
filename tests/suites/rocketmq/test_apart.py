"""What becomes of one message, or of one topic, is no one else's trouble, held against a real server."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Confirmed, Refused, RetryRequest, Subscription
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import ONE_PULL
from support.brokers.rocketmq import adapter_on

Open = Callable[..., tuple[RocketMQAdapter, RecordingSink]]


@pytest.fixture
def open_adapter(rocketmq_url: str) -> Iterator[Open]:
    """Open adapters in a namespace of this test's own; they are closed when it ends."""
    space, opened = f"t{uuid4().hex[:10]}", []

    def start(*subscriptions: Subscription) -> tuple[RocketMQAdapter, RecordingSink]:
        adapter, sink = adapter_on(rocketmq_url, namespace=space), RecordingSink()
        opened.append(adapter)
        adapter.open(subscriptions, sink)
        return adapter, sink

    yield start
    for adapter in opened:
        adapter.close(grace=timedelta(seconds=5))


def test_a_refused_message_takes_no_other_with_it(open_adapter: Open) -> None:
    """In one queue, only the message that the broker does not take is refused, and what would overtake it."""
    adapter, sink = open_adapter(Subscription("points", "orders", "points", {"queues": 1}))
    too_large = os.urandom(5 * 1024 * 1024)
    sent = [(b"1", "a"), (too_large, "b"), (b"3", "c"), (b"4", "b"), (b"5", "a")]
    answers = adapter.publish("orders", {}, [OutgoingMessage(body, key=key) for body, key in sent])
    assert [isinstance(answer, Confirmed) for answer in answers] == [True, False, True, False, True]
    assert isinstance(answers[3], Refused)
    assert "overtake an earlier message of its key" in str(answers[3].error)
    assert [delivery.message.body for delivery in sink.wait_for(3)] == [b"1", b"3", b"5"]


class Taker:
    """Acknowledges what comes."""

    def __init__(self, adapter: RocketMQAdapter, sink: RecordingSink) -> None:
        self._adapter = adapter
        self._sink = sink
        self.taken = 0

    def take_until(self, reached: Callable[[], bool]) -> None:
        """Go on until `reached()`."""
        while not reached():
            self._sink.wait_until(lambda: len(self._sink._received) > self.taken, lambda: "more", 30)
            fresh = self._sink.deliveries()[self.taken :]
            self.taken += len(fresh)
            assert not self._adapter.acknowledge(fresh)


def test_retries_of_a_paused_topic_stay_on_the_broker(open_adapter: Open) -> None:
    """The group's other topic gets its own meanwhile; when the first one goes on, each of its own comes once."""
    count, few, topics = 150, 5, ("one", "two")
    bodies = [b"%d" % number for number in range(count)]

    def both(in_flight: int) -> tuple[RocketMQAdapter, RecordingSink]:
        return open_adapter(
            *[Subscription(topic, topic, "both", {"queues": 1}, in_flight) for topic in topics]
        )

    first, received = both(count)
    for topic in topics:
        answers = first.publish(topic, {}, [OutgoingMessage(body) for body in bodies])
        assert all(isinstance(answer, Confirmed) for answer in answers)
    later = [RetryRequest(delivery, timedelta(seconds=2), {}) for delivery in received.wait_for(2 * count)]
    assert not first.retry(later)
    first.close(grace=timedelta(seconds=5))
    adapter, sink = both(few)
    adapter.pause("one")
    taker = Taker(adapter, sink)
    taker.take_until(lambda: len(sink.deliveries("two")) >= count)
    (paused,) = [window for window in adapter._members[0].windows if window.consumer == "one"]
    assert len(paused._waiting) <= ONE_PULL
    assert len(sink.deliveries("one")) <= few
    adapter.resume("one")
    taker.take_until(lambda: taker.taken >= 2 * count)
    for topic in topics:
        assert sorted(sink.bodies(topic)) == sorted(bodies)


POINTS = Subscription("points", "orders", "points", {"queues": 1}, 2)


@pytest.fixture
def resting(open_adapter: Open) -> tuple[RocketMQAdapter, RecordingSink]:
    """A member alone in its group that has left it in a pause; of four messages it has settled the second one."""
    adapter, sink = open_adapter(POINTS)
    adapter.publish("orders", {}, [OutgoingMessage(b"%d" % number) for number in range(4)])
    first, second = sink.wait_for(2)
    assert not adapter.acknowledge([second])
    third = sink.wait_for(3)[2]
    adapter.pause("points")
    assert not adapter.give_back([first, third])
    (member,) = adapter._members
    sink.wait_until(lambda: member.assignment.resting, lambda: "the member to leave", 20)
    return adapter, sink


def _taken(adapter: RocketMQAdapter, sink: RecordingSink, count: int, before: int = 0) -> list[bytes]:
    taker = Taker(adapter, sink)
    taker.taken = before
    taker.take_until(lambda: taker.taken - before >= count)
    return [delivery.message.body for delivery in sink.deliveries()[before:]]


def test_what_is_given_back_in_a_pause_keeps_its_place(
    resting: tuple[RocketMQAdapter, RecordingSink],
) -> None:
    """Though something behind it is settled, it comes again before what follows it, and what is settled does not."""
    adapter, sink = resting
    adapter.resume("points")
    assert _taken(adapter, sink, 3, before=3) == [b"0", b"2", b"3"]


def test_a_member_that_ends_in_a_pause_leaves_a_gap_alone(
    open_adapter: Open, resting: tuple[RocketMQAdapter, RecordingSink]
) -> None:
    """What was settled behind the gap does not come again after the next start."""
    resting[0].close(grace=timedelta(seconds=5))
    assert sorted(_taken(*open_adapter(POINTS), 3)) == [b"0", b"2", b"3"]


def test_a_member_that_ends_in_a_pause_takes_nothing_back(
    open_adapter: Open, resting: tuple[RocketMQAdapter, RecordingSink]
) -> None:
    """What another member has done meanwhile stays done: its progress is not overwritten by an older one."""
    other, received = open_adapter(POINTS)
    assert sorted(set(_taken(other, received, 4))) == [b"0", b"1", b"2", b"3"]
    other.close(grace=timedelta(seconds=5))
    resting[0].close(grace=timedelta(seconds=5))
    last, nothing = open_adapter(POINTS)
    last.publish("orders", {}, [OutgoingMessage(b"new")])
    assert _taken(last, nothing, 1) == [b"new"]
