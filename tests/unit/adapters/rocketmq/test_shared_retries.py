"""The retries of a group's topics come by one queue: none of them fills the memory, and none waits for another."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.remoting.consumer import unsettled_gap as tidying
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import ONE_PULL, PrefetchWindow
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue, Progress
from oncemq_adapters.rocketmq.remoting.consumer.settlement import acknowledge
from oncemq_adapters.rocketmq.remoting.consumer.subscriptions import Part
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.protocol import StoredMessage
from support.brokers.stored import stored

ONE, TWO = "one", "two"
RETRIES = "%RETRY%g"


class Log:
    """A broker with one queue of retries; a poll that finds nothing is held."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._messages = [
            stored(b"%d" % offset, topic=RETRIES, text=f"RETRY_TOPIC\x01{origin}\x02", offset=offset)
            for offset, origin in enumerate(origins)
        ]
        self._asked: deque[tuple[Mapping[str, str], Callable[..., None]]] = deque()
        self.broken = 0
        self.asked = 0

    def alive(self) -> dict[str, Any]:
        """Return the connection, which is this."""
        return {"b": self}

    def get(self, _name: str) -> "Log":
        """Return the connection."""
        return self

    def submit(self, _code: int, fields: Mapping[str, str], done: Callable[..., None]) -> None:
        """Keep a question."""
        self._asked.append((fields, done))

    def call(self, _code: int, fields: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        """Answer at once."""
        self.asked += 1
        error, answer, body = self._found(int(fields["queueOffset"]))
        if error is not None:
            raise error
        return answer, body

    def answer(self) -> None:
        """Answer whatever is not a poll at the end."""
        held = []
        while self._asked:
            fields, done = self._asked.popleft()
            at = int(fields["queueOffset"])
            if at >= len(self._messages) and int(fields["sysFlag"]) & 2:
                held.append((fields, done))
            elif self.broken:
                self.broken -= 1
                done(Denied("b", 1, "not now", {}), {}, b"")
            else:
                done(*self._found(at))
        self._asked.extend(held)

    def _found(self, at: int) -> tuple[Denied | None, Mapping[str, str], bytes]:
        part = self._messages[at : at + ONE_PULL]
        following = {"nextBeginOffset": str(at + len(part))}
        return (
            (None, following, b"".join(part))
            if part
            else (Denied("b", codes.PULL_NOT_FOUND, "", following), {}, b"")
        )


class AtOnce:
    """Does what it is told at once, on the thread of anyone who tells it."""

    def at(self, _delay: float, job: Callable[..., object], *arguments: Any) -> None:
        """Do it."""
        job(*arguments)


class Stage:
    """A member of two topics, its broker, and the consumers that settle."""

    def __init__(self, origins: Sequence[str], one: int = 4, two: int = 10) -> None:
        self.log, self.origins = Log(origins), origins
        sink: Any = self
        self.windows = {
            name: PrefetchWindow(name, name, "g", limit, sink) for name, limit in ((ONE, one), (TWO, two))
        }
        parts = {name: Part(parse_topic(name, {}, ""), window) for name, window in self.windows.items()}
        unused: Any = None
        address = parse_address("rocketmq://localhost", {})
        self.member = Member(address, unused, "g", parts, "app", lambda *_: ())
        brokers: Any = self.log
        self.member.puller._brokers = brokers
        self.jobs: list[Callable[[], object]] = []
        steward: Any = self
        self.member.puller._steward = steward
        at_once: Any = AtOnce()
        self.member._room.steward = at_once
        self.seen: dict[str, list[int]] = {ONE: [], TWO: []}
        self.open: dict[str, list[Delivery]] = {ONE: [], TWO: []}
        self.queue = self.take(None)

    def take(self, known: Progress | None) -> ProcessQueue:
        """Begin with the queue, where it was left."""
        self.queue = ProcessQueue((RETRIES, "b", 0), 1)
        if known is None:
            self.queue.begin(0, 0, ())
        else:
            self.queue.begin(known.prefix, known.committed, known.settled)
        self.member.assignment.queues[self.queue.key] = self.queue
        return self.queue

    def at(self, _delay: float, job: Callable[..., object], *arguments: Any) -> None:
        """Keep what the puller would do later."""
        self.jobs.append(lambda: job(*arguments))

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Take deliveries."""
        self.seen[consumer] += [int(delivery.message.body) for delivery in deliveries]
        self.open[consumer] += deliveries

    def go(self) -> None:
        """Have the broker answer until it has nothing more to say."""
        self.member.puller.pull(self.queue)
        self.log.answer()
        for job in self.jobs:
            job()
        self.jobs.clear()
        self.log.answer()
        for name, window in self.windows.items():
            assert len(window._waiting) <= max(ONE_PULL, window._limit), name

    def settle(self, consumer: str, most: int = 10_000) -> int:
        """Settle what a consumer has; returns how much that was."""
        mine = self.open[consumer][:most]
        del self.open[consumer][:most]
        assert not acknowledge(mine)
        return len(mine)

    def settle_all(self, *consumers: str) -> None:
        """Settle until nothing more comes."""
        self.go()
        while sum([self.settle(consumer) for consumer in consumers]):
            self.go()

    def of(self, consumer: str) -> list[int]:
        """Return the offsets of a consumer's messages."""
        return [offset for offset, origin in enumerate(self.origins) if origin == consumer]


def moved(stage: Stage) -> list[int]:
    """Return the offsets of what is moved to the retries when the member leaves."""
    found: list[StoredMessage] = []

    def move(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        found.extend(messages)
        return messages

    log: Any = stage.log
    tidying.tidy(stage.queue, stage.member.parts, log, move)
    return [message.offset for message in found]


def test_a_paused_topic_neither_fills_the_memory_nor_stops_the_others() -> None:
    """What it has no room for stays on the broker; when it goes on, it gets all of it, in order and once."""
    stage = Stage([ONE, TWO] * 500)
    stage.windows[ONE].pause()
    stage.settle_all(TWO)
    assert stage.seen == {ONE: [], TWO: stage.of(TWO)}
    assert stage.queue.prefix() == 0
    stage.windows[ONE].resume()
    stage.settle_all(ONE, TWO)
    assert stage.seen == {name: stage.of(name) for name in (ONE, TWO)}
    assert stage.queue.prefix() == 1000


def test_a_settlement_begins_the_fetching() -> None:
    """A topic that is only slow gets what was left for it as soon as it has room, whatever the queue's poll waits for."""
    stage = Stage([ONE] * 100 + [TWO])
    stage.go()
    assert stage.seen[TWO] == [100]
    done = 0
    while stage.settle(ONE):
        stage.log.answer()
        done += 1
    assert stage.seen[ONE] == stage.of(ONE)


def test_what_was_settled_does_not_come_again_with_what_was_left() -> None:
    """A queue that was lost and is ours again goes on where it was, for each of its topics."""
    stage = Stage([ONE, TWO] * 100)
    stage.windows[ONE].pause()
    stage.settle_all(TWO)
    before = stage.queue
    before.lose()
    for window in stage.windows.values():
        window.drop(before, lost=True)
    stage.take(before.progress())
    stage.windows[ONE].resume()
    stage.settle_all(ONE, TWO)
    assert stage.seen == {name: stage.of(name) for name in (ONE, TWO)}
    assert stage.queue.prefix() == 200


def test_a_member_that_leaves_moves_what_it_had_left() -> None:
    """Otherwise what is settled behind it would come again with it."""
    stage = Stage([ONE, TWO] * 100)
    stage.windows[ONE].pause()
    stage.settle_all(TWO)
    assert moved(stage) == stage.of(ONE)
    assert stage.queue.prefix() == 200


def test_a_member_that_leaves_fetches_nothing_without_need() -> None:
    """What nothing settled follows comes again from its place, no matter who has the queue then."""
    stage = Stage([ONE, TWO] * 100, two=200)
    stage.windows[ONE].pause()
    stage.go()
    assert stage.queue.has_left(stage.windows[ONE])
    assert moved(stage) == []
    assert stage.log.asked == 0
    assert stage.queue.prefix() == 0


def test_a_member_that_leaves_fetches_as_far_as_something_settled_follows() -> None:
    """Behind the last settled message all stays where it is."""
    stage = Stage([ONE, TWO] * 40 + [ONE] * 100)
    stage.windows[ONE].pause()
    stage.settle_all(TWO)
    assert moved(stage) == stage.of(ONE)[:40]
    assert stage.log.asked == 1
    assert stage.queue.prefix() == 80


def test_a_member_that_leaves_has_no_more_in_memory_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large messages that it cannot take all stay unsettled, and come again with what is behind them."""
    monkeypatch.setattr(tidying, "MOST_BYTES", 50)
    stage = Stage([ONE, TWO] * 100)
    stage.windows[ONE].pause()
    stage.settle_all(TWO)
    waiting = len(stage.windows[ONE]._waiting)
    taken = moved(stage)
    assert taken == stage.of(ONE)[: len(taken)]
    assert 50 <= sum(len(str(offset)) for offset in taken[waiting:]) < 50 + 3
    assert stage.queue.prefix() == taken[-1] + 1


def test_a_failed_fetch_is_tried_again() -> None:
    """What was left is not forgotten when the broker cannot be asked."""
    stage = Stage([ONE] * 50 + [TWO])
    stage.windows[ONE].pause()
    stage.go()
    stage.windows[ONE].resume()
    stage.log.broken = 1
    stage.settle_all(ONE, TWO)
    assert stage.seen[ONE] == stage.of(ONE)


ACTS = some.lists(
    some.tuples(some.sampled_from((ONE, TWO)), some.sampled_from(("pause", "resume", "settle")), some.integers(1, 9)),
    max_size=30,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    some.lists(some.sampled_from((ONE, ONE, TWO)), max_size=300),
    some.integers(1, 40),
    some.integers(1, 5),
    ACTS,
)
def test_whatever_happens_each_comes_once_and_none_is_lost(
    origins: list[str], one: int, two: int, acts: list[tuple[str, str, int]]
) -> None:
    """Nothing is committed beyond what is unsettled, nothing comes twice, and in the end everything has come."""
    stage = Stage(origins, one, two)
    for name, act, count in acts:
        if act == "settle":
            stage.settle(name, count)
        else:
            getattr(stage.windows[name], act)()
        stage.go()
        settled = {
            offset
            for each in (ONE, TWO)
            for offset in stage.seen[each][: len(stage.seen[each]) - len(stage.open[each])]
        }
        assert set(range(stage.queue.prefix() or 0)) <= settled
    for window in stage.windows.values():
        window.resume()
    stage.settle_all(ONE, TWO)
    assert stage.seen == {name: stage.of(name) for name in (ONE, TWO)}
    assert stage.queue.prefix() == len(origins)
