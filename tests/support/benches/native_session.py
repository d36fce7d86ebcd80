"""A session of librocketmq whose process and whole queue are scripted."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Event

import pytest

from oncemq.message.envelope import Delivery
from oncemq_adapters.librocketmq.frames import Identity
from oncemq_adapters.rocketmq.native import session as module
from oncemq_adapters.rocketmq.native import settlement
from oncemq_adapters.rocketmq.native.inbox import Inbox
from oncemq_adapters.rocketmq.native.message_reader import Found
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq.native.session import Session
from oncemq_adapters.rocketmq_client.names import retry_topic
from oncemq_adapters.rocketmq_client.properties import ORIGIN_TOPIC, UNIQUE_ID
from oncemq_adapters.rocketmq_client.protocol import StoredMessage

RETRIES = retry_topic("group")


def stored_message(
    offset: int,
    name: str = "",
    topic: str = "orders",
    stored_at: int = 5,
    *,
    marked: bool | None = None,
) -> StoredMessage:
    """Return a message as the broker keeps it."""
    properties = {UNIQUE_ID: name or f"id-{offset}"}
    if marked or (marked is None and topic == RETRIES):
        properties[ORIGIN_TOPIC] = "orders"
    return StoredMessage(topic, b"{}", properties, offset, 1, stored_at, 0, 0)


def asked(offset: int, name: str = "", topic: str = "orders", stored_at: int = 5) -> Identity:
    """Return what a callback of the library asks about."""
    return topic, 0, offset, stored_at, name or f"id-{offset}"


class Process:
    """Notes what it is told."""

    def __init__(self, *_: object) -> None:
        self.words: list[list[Identity]] = []
        self.answers: list[Identity] = []

    @property
    def passed(self) -> list[Identity]:
        """All that is finished."""
        return [letter for word in self.words for letter in word]

    def finished(self, messages: Sequence[tuple[str, int, int, int, str, int]]) -> None:
        """Note them, without our number of their queue."""
        self.words.append([message[:5] for message in messages])

    def answer(self, message: Identity) -> None:
        """Note it."""
        self.answers.append(message)

    def kill(self) -> None:
        """Do nothing."""


class Whole:
    """Two brokers with a queue of the same number each."""

    def __init__(self, **queues: Sequence[StoredMessage]) -> None:
        self._queues = queues
        self.reads = 0
        self.asked: list[Callable[[], None]] = []

    def queues_of(self, topics: Iterable[str], number: int) -> Sequence[Queue]:
        """Return those of both."""
        return [Queue(broker, topic, number) for topic in topics for broker in self._queues]

    def find(
        self, topics: Sequence[str], number: int, offset: int, unique_id: str, stored_at: int
    ) -> Sequence[Found]:
        """Return the message, or those that may be it, each with the one behind it."""
        self.reads += 1
        alike = []
        for broker, messages in self._queues.items():
            found = [near for near in messages if 0 <= near.offset - offset <= 1 and near.topic in topics]
            first = found[0] if found else None
            if first is None or first.properties.get(UNIQUE_ID, unique_id) != unique_id:
                continue
            answer = Found(Queue(broker, first.topic, number), found)
            if first.stored == stored_at:
                return [answer]
            alike.append(answer)
        return alike

    def after(
        self,
        broker: str,
        _topic: str,
        _number: int,
        offset: int,
        done: Callable[[Sequence[StoredMessage]], None],
    ) -> None:
        """Have the two that follow told at the next `answer`."""
        self.reads += 1
        found = [message for message in self._queues[broker] if offset < message.offset <= offset + 2]
        self.asked.append(partial(done, found))

    def answer(self) -> None:
        """Answer all questions, also those that this brings."""
        while self.asked:
            self.asked.pop(0)()


class Sink:
    """Keeps what is delivered."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.heard = Event()

    def deliver(self, deliveries: Sequence[Delivery], _consumer: str) -> None:
        """Take some."""
        self.got += deliveries
        self.heard.set()

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Take no notice."""


class Bench:
    """A session with its surroundings."""

    def __init__(self, whole: Whole, progress: Progress | None = None, limit: int = 1000) -> None:
        self.whole = whole
        self.sink = Sink()
        self.progress = progress or Progress("group")
        inbox = Inbox("work", "orders", "group", limit, self.sink)
        self.session = Session(1, "group", {"orders": inbox}, whole, self.progress, {}, print)  # type: ignore[arg-type]
        self.process: Process = self.session._process  # type: ignore[assignment]

    def acknowledge(self, *deliveries: Delivery) -> list[Exception]:
        """Return what failed."""
        return [failure.error for failure in settlement.acknowledge(deliveries)]

    def ask(self, *messages: Identity) -> None:
        """Have callbacks wait for these."""
        for message in messages:
            self.session._on_message(message)
            self.whole.answer()

    def reach(self, *places: tuple[int, int]) -> None:
        """Have callbacks pass."""
        self.session._on_reached(places)
        self.whole.answer()


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no real process of the library start."""
    monkeypatch.setattr(module, "LibraryProcess", Process)


def offsets_of(deliveries: Iterable[Delivery]) -> list[int]:
    """Return where delivered messages stand in their queue."""
    return [delivery.token.stored.offset for delivery in deliveries]
