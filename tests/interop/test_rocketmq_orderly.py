"""A group of Java's orderly members and ours: every queue is consumed in its order, while members join, leave and die."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Adapter, Confirmed, Subscription
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from support.brokers.java_peer import JavaPeer, compiled
from support.brokers.rocketmq import adapter_on

KEYS = 8
GRACE = timedelta(seconds=5)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Handled = tuple[float, str, int]
"""When, which key, and which of its messages."""


def read(at: float, body: bytes) -> Handled:
    """Return what a body says."""
    key, _, number = body.decode().partition(":")
    return at, key, int(number)


@dataclass
class Load:
    """Publishes about 100 messages a second, each key's numbered from 0.

    Attributes:
        sent: how many, by key.
    """

    adapter: Adapter
    topic: str
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self._over = Event()
        self._thread = Thread(target=self._publish)
        self._thread.start()

    def stop(self) -> None:
        """Publish no more."""
        self._over.set()
        self._thread.join()

    def _publish(self) -> None:
        while not self._over.wait(0.08):
            keys = [f"k{number}" for number in range(KEYS)]
            messages = [OutgoingMessage(f"{key}:{self.sent[key]}".encode(), key=key) for key in keys]
            answers = self.adapter.publish(self.topic, {"fifo": True}, messages)
            assert all(isinstance(answer, Confirmed) for answer in answers), answers
            for key in keys:
                self.sent[key] += 1


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
                self.handled.append(read(monotonic(), delivery.message.body))
            self._adapter.acknowledge(deliveries)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The peer, compiled."""
    with compiled(tmp_path_factory.mktemp("peer")) as folder:
        yield folder


def eventually(reached: Callable[[], bool], timeout: float = 90) -> None:
    """Wait until `reached()`."""
    deadline, pause = monotonic() + timeout, Event()
    while not reached():
        assert monotonic() < deadline, f"waited {timeout} s"
        pause.wait(0.05)


class Group:
    """A group with members of both kinds, under load.

    Attributes:
        javas: Java's members, in the order of their joining.
    """

    def __init__(self, url: str, classes: Path) -> None:
        self._url, self._classes = url, classes
        self._topic, self._group = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self._subscription = Subscription("c", self._topic, self._group, {"queues": 4, "fifo": True})
        self._workers: list[Worker] = []
        self._adapters = [adapter_on(url)]
        self._adapters[0].prepare([self._subscription])
        self._load = Load(self._adapters[0], self._topic)
        self.javas: list[JavaPeer] = []

    def handled(self) -> list[Handled]:
        """Return what all members have handled, in the order of time."""
        ours = [each for worker in self._workers for each in list(worker.handled)]
        by_java = [read(message.at, message.body) for java in self.javas for message in list(java.received)]
        return sorted(ours + by_java)

    def java_joins(self) -> None:
        """Have a Java process join; returns when it has had messages, and all keys go on."""
        java = JavaPeer(self._url, self._classes)
        self.javas.append(java)
        java.order("consume", self._group, self._topic, "orderly")
        eventually(lambda: len(java.received) > KEYS)
        self.goes_on()

    def we_join(self) -> None:
        """Have a member of ours join; returns when it has had messages, and all keys go on."""
        adapter = adapter_on(self._url)
        worker = Worker(adapter)
        self._adapters.append(adapter)
        self._workers.append(worker)
        adapter.open([self._subscription], worker)
        eventually(lambda: len(worker.handled) > KEYS)
        self.goes_on()

    def we_leave(self) -> None:
        """Have our latest member leave in order; returns when all keys go on."""
        self._adapters[-1].pause(self._subscription.consumer)
        self._workers[-1].stop()
        self._adapters[-1].close(grace=GRACE)
        self.goes_on()

    def goes_on(self) -> None:
        """Wait until each key has had a message that was published after now."""
        floor = dict(self._load.sent)

        def went_on() -> bool:
            highest = dict.fromkeys(floor, -1)
            for _, key, number in self.handled():
                highest[key] = max(highest[key], number)
            return all(highest[key] > least for key, least in floor.items())

        eventually(went_on)

    def end(self) -> None:
        """Publish no more; returns when everything was handled."""
        self._load.stop()
        expected = sum(self._load.sent.values())
        eventually(lambda: len({(key, number) for _, key, number in self.handled()}) == expected)

    def close(self) -> None:
        """End all members."""
        self._load.stop()
        for worker in self._workers:
            worker.stop()
        for adapter in reversed(self._adapters):
            adapter.close(grace=GRACE)
        for java in self.javas:
            java.close()


@pytest.fixture
def group(rocketmq_url: str, classes: Path) -> Iterator[Group]:
    """A group that one Java member consumes for."""
    group = Group(rocketmq_url, classes)
    try:
        group.java_joins()
        yield group
    finally:
        group.close()


def overtaken(handled: Sequence[Handled]) -> list[tuple[str, int, int]]:
    """Return each (key, last, next) where a message came for the first time before its predecessor."""
    last: dict[str, int] = defaultdict(lambda: -1)
    found = []
    for _, key, number in handled:
        if number > last[key] + 1:
            found.append((key, last[key], number))
        last[key] = max(last[key], number)
    return found


def test_order_is_kept_while_members_join_and_leave(group: Group) -> None:
    """Ours and Java's wait for each other's locks: nothing comes before its predecessor."""
    group.we_join()
    again = Counter((key, number) for _, key, number in group.handled())
    assert [each for each, times in again.items() if times > 1] == []
    group.java_joins()
    group.we_leave()
    group.we_join()
    group.javas[0].order("leave")
    group.end()
    assert overtaken(group.handled()) == []


@pytest.mark.long_form("ONCEMQ_LOCKS=expire")
def test_order_is_kept_when_a_java_member_dies(group: Group) -> None:
    """Its locks are left behind for a minute; then we go on where it had got to, and repeat what it had not committed."""
    group.we_join()
    group.javas[0].close()
    group.goes_on()
    group.end()
    assert overtaken(group.handled()) == []
