"""A member's share of the queues: what it does when one goes to someone else, and while the brokers do not know it."""

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest

from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import COMMIT_AFTER
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.consumer.rebalance import Rebalance
from oncemq_adapters.rocketmq.remoting.consumer.settlement import acknowledge
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part
from oncemq_adapters.rocketmq_client.connections import Route
from oncemq_adapters.rocketmq_client.protocol import StoredMessage


class Routes:
    """One broker with two queues of every topic, which cannot be reached."""

    masters: ClassVar[dict[str, str]] = {}

    def find(self, _topic: str) -> Route:
        """Return the queues."""
        return Route((("b", 0), ("b", 1)), (("b", 0), ("b", 1)))


class Sink:
    """Counts what it is given."""

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []

    def deliver(self, deliveries: Sequence[Delivery], _consumer: str) -> None:
        """Keep them."""
        self.delivered += deliveries

    def lost(self, _consumer: str, _generation: int, *, alone: bool = False) -> None:
        """Do nothing."""


def member_of(window: PrefetchWindow) -> Member:
    """Return a member that was never started, with one subscription."""
    part = Part(parse_topic("t", {}, ""), window)
    routes: Any = Routes()
    return Member(parse_address("rocketmq://localhost", {}), routes, "g", {"t": part}, "app", lambda *_: ())


def owned(member: Member, number: int) -> ProcessQueue:
    """Return a queue that the member has begun with."""
    queue = ProcessQueue(("t", "b", number), number + 1)
    queue.begin(0, 0, ())
    member.assignment.queues[queue.key] = queue
    return queue


def stored(offset: int) -> StoredMessage:
    """Return a message."""
    return StoredMessage("t", b"x", {}, offset, 1, 1, 0, 0)


def test_a_queue_that_is_lost_leaves_its_room_to_the_others() -> None:
    """Its deliveries are void and never settled, so no one else would begin to pull again."""
    sink: Any = Sink()
    window = PrefetchWindow("c", "t", "g", 1, sink)
    member = member_of(window)
    gone, other = owned(member, 0), owned(member, 1)
    gone.ask()
    member.parts.deliver(gone, gone.advance(1, [stored(0)]))
    assert (len(sink.delivered), window.has_room) == (1, False)
    pulled: list[ProcessQueue] = []
    member.puller.pull = pulled.append  # type: ignore[method-assign]
    member.assignment.move(gone.key, 0)
    assert window.has_room
    assert pulled == [other]


class Steward:
    """Keeps the jobs, and does them when a test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[..., object]] = []

    def at(self, _delay: float, job: Callable[..., object], *arguments: Any) -> None:
        """Keep one."""
        self.jobs.append(partial(job, *arguments))

    def run(self) -> int:
        """Do what is kept now; returns how much that was."""
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()
        return len(jobs)


def test_who_settles_hands_nothing_over() -> None:
    """What waited for room is understood by another thread; anyone who settles has the next messages to run."""
    sink: Any = Sink()
    window = PrefetchWindow("c", "t", "g", 1, sink)
    member, steward = member_of(window), Steward()
    deliveries: Any = steward
    member._room.steward = deliveries
    queue = owned(member, 0)
    queue.ask()
    member.parts.deliver(queue, queue.advance(2, [stored(0), stored(1)]))
    assert acknowledge(sink.delivered) == []
    assert [delivery.token.stored.offset for delivery in sink.delivered] == [0]
    assert steward.run() == 1
    assert [delivery.token.stored.offset for delivery in sink.delivered] == [0, 1]


def test_a_commit_that_fails_holds_up_no_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited for room is handed over first: telling the broker may take seconds, or come to nothing."""
    sink: Any = Sink()
    window = PrefetchWindow("c", "t", "g", 1, sink)
    member, steward = member_of(window), Steward()
    deliveries: Any = steward
    member._room.steward = deliveries
    queue = owned(member, 0)
    queue.ask()
    member.parts.deliver(queue, queue.advance(2, [stored(0), stored(1)]))
    queue.settled_since_commit = COMMIT_AFTER

    def fail(_queue: ProcessQueue) -> None:
        raise OSError("nothing can be sent")

    monkeypatch.setattr(member.offsets, "commit", fail)
    assert acknowledge(sink.delivered) == []
    with pytest.raises(OSError, match="nothing"):
        steward.run()
    assert [delivery.token.stored.offset for delivery in sink.delivered] == [0, 1]


class SlowSink(Sink):
    """Takes as long for what it is given as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Keep them, when it is told to."""
        self.begun.set()
        assert self.go_on.wait(10)
        super().deliver(deliveries, consumer)


def test_who_settles_does_not_wait_for_who_hands_over() -> None:
    """Another thread may be understanding messages for long; what it hands over meanwhile stays in order."""
    sink = SlowSink()
    anything: Any = sink
    window, queue = PrefetchWindow("c", "t", "g", 2, anything), ProcessQueue(("t", "b", 0), 1)
    slow = threading.Thread(target=window.offer, args=(queue, [stored(0), stored(1), stored(2)]))
    slow.start()
    assert sink.begun.wait(10)
    assert window.leave(queue, 1, 0)
    behind = threading.Thread(target=window.flush)
    behind.start()
    sink.go_on.set()
    for thread in (slow, behind):
        thread.join(10)
    assert [delivery.token.stored.offset for delivery in sink.delivered] == [0, 1, 2]


class Stranger:
    """A broker that lists other members alone."""

    def check(self, _name: str) -> None:
        """Be there."""

    def get(self, _name: str) -> "Stranger":
        """Return the connection."""
        return self

    def call(self, *_: Any) -> tuple[dict[str, str], bytes]:
        """Return the members."""
        return {}, json.dumps({"consumerIdList": ["another"]}).encode()


@pytest.fixture
def steward() -> Steward:
    """A steward."""
    return Steward()


@pytest.fixture
def assignment(steward: Steward) -> Rebalance:
    """The share of a member of two topics and their retries, whom no broker knows yet."""

    def nothing(_queue: ProcessQueue) -> None: ...

    parts: Sequence[Any] = (Stranger(), Routes(), steward)
    brokers, routes, things = parts
    starts = {"t": "first", "u": "first", "%RETRY%g": "first"}
    unused: Any = None
    return Rebalance(
        *(brokers, routes, "g", "me", starts, unused, unused, 1.0, things),
        *(nothing, nothing, nothing, nothing),
        insist=False,
    )


def test_who_is_not_known_yet_asks_again_once(assignment: Rebalance, steward: Steward) -> None:
    """However many topics there are: what is done again must not grow from try to try."""
    assignment.rebalance()
    assert [steward.run() for _ in range(5)] == [1] * 5


def test_who_rests_does_not_ask(assignment: Rebalance, steward: Steward) -> None:
    """A member that has left the group is listed nowhere, and takes nothing over until it is back."""
    assignment.rebalance()
    assignment.resting = True
    assert [steward.run() for _ in range(2)] == [1, 0]
