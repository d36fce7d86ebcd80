"""A Python member that joins a Java group late, under load, takes its queues over without a pause that anyone would notice."""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count, pairwise
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Adapter, Confirmed, Subscription
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQMetadata
from support.brokers.java_peer import JavaPeer, compiled
from support.brokers.rocketmq import adapter_on

JOINS = int(os.environ.get("ONCEMQ_JOINS", "2"))
QUEUES = 4
LONGEST_GAP = 2.0
"""Seconds in which a queue may stand without a handler."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 30 * JOINS)]

Handled = tuple[float, int, bytes]
"""When, of which queue, and which message."""


class Worker(RecordingSink):
    """Settles what it is given at once, on a thread of its own."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.handled: list[Handled] = []
        self._adapter = adapter
        self._arrived: SimpleQueue[Sequence[Delivery] | None] = SimpleQueue()
        self._thread = Thread(target=self._work)
        self._thread.start()

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Have them settled."""
        del consumer
        self._arrived.put(deliveries)

    def stop(self) -> None:
        """Settle what has arrived."""
        self._arrived.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (deliveries := self._arrived.get()) is not None:
            for delivery in deliveries:
                where = RocketMQMetadata.read(delivery.message.metadata_source)
                assert where is not None
                self.handled.append((monotonic(), where.queue_id, delivery.message.body))
            self._adapter.acknowledge(deliveries)


class Load:
    """Publishes about 200 messages a second to all queues."""

    def __init__(self, adapter: Adapter, topic: str) -> None:
        self.sent = 0
        self._adapter, self._topic = adapter, topic
        self._over = Event()
        self._thread = Thread(target=self._publish)
        self._thread.start()

    def stop(self) -> None:
        """Publish no more."""
        self._over.set()
        self._thread.join()

    def _publish(self) -> None:
        numbers = count()
        while not self._over.wait(0.05):
            messages = [OutgoingMessage(b"%d" % next(numbers)) for _ in range(10)]
            answers = self._adapter.publish(self._topic, {}, messages)
            assert all(isinstance(answer, Confirmed) for answer in answers), answers
            self.sent += len(messages)


@pytest.fixture
def java(rocketmq_url: str, tmp_path: Path) -> Iterator[JavaPeer]:
    """A Java process."""
    with compiled(tmp_path) as classes, JavaPeer(rocketmq_url, classes) as peer:
        yield peer


def eventually(reached: Callable[[], bool], timeout: float = 60) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


def by_java(java: JavaPeer) -> list[Handled]:
    """Return what Java has handled."""
    return [
        (message.at, int(message.properties["java.queue"]), message.body) for message in list(java.received)
    ]


def longest_gap(handled: Sequence[Handled], since: float, until: float) -> float:
    """Return the longest time in which a queue had no handler."""
    times: dict[int, list[float]] = defaultdict(lambda: [since])
    for at, queue, _ in sorted(handled):
        if since <= at <= until:
            times[queue].append(at)
    return max(
        later - earlier for queue in range(QUEUES) for earlier, later in pairwise([*times[queue], until])
    )


def test_a_late_join_under_load_costs_less_than_two_seconds(rocketmq_url: str, java: JavaPeer) -> None:
    """No queue is without a handler for longer, nothing is lost, and what both run is counted."""
    topic, group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
    subscription = Subscription("c", topic, group, {"queues": QUEUES})
    publisher = adapter_on(rocketmq_url)
    publisher.prepare([subscription])
    java.order("consume", group, topic)
    load = Load(publisher, topic)
    ours: list[Handled] = []
    rows: list[tuple[float, float, float]] = []
    departures: list[tuple[float, float]] = []
    try:
        eventually(lambda: len({queue for _, queue, _ in by_java(java)}) == QUEUES)
        for _ in range(JOINS):
            began = monotonic()
            adapter = adapter_on(rocketmq_url)
            worker = Worker(adapter)
            adapter.open([subscription], worker)
            eventually(lambda worker=worker: len(worker.handled) > 100)
            first = worker.handled[0][0] - began
            joined = monotonic()
            adapter.pause(subscription.consumer)
            worker.stop()
            adapter.close(grace=timedelta(seconds=5))
            ours += worker.handled
            left = monotonic()
            eventually(
                lambda left=left: len({queue for at, queue, _ in by_java(java) if at > left}) == QUEUES
            )
            back = monotonic()
            handled = [*ours, *by_java(java)]
            departures.append((joined, back))
            rows.append((first, longest_gap(handled, began, joined), longest_gap(handled, joined, back)))
        load.stop()
        eventually(lambda: len({body for _, _, body in [*ours, *by_java(java)]}) == load.sent)
    finally:
        load.stop()
        publisher.close(grace=timedelta(seconds=5))
    had: dict[bytes, list[float]] = defaultdict(list)
    for at, _, body in sorted([*ours, *by_java(java)]):
        had[body].append(at)
    doubled = [times[-1] for times in had.values() if len(times) > 1]
    leaving = sum(any(joined < at < back for joined, back in departures) for at in doubled)
    for row in rows:
        sys.stdout.write("first {:.2f} s, longest gap joining {:.2f} s, leaving {:.2f} s\n".format(*row))
    sys.stdout.write(
        f"{len(had)} of {load.sent} handled, {len(ours)} by Python; by both {len(doubled) - leaving} of joins, "
        f"{leaving} of departures\n"
    )
    assert len(had) == load.sent
    assert max(gap for _, gap, _ in rows) < LONGEST_GAP, rows
