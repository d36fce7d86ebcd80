"""Inbox of one consumer: it holds no more than it may; the rest waits here."""

from collections import deque
from collections.abc import Sequence
from threading import RLock
from typing import Protocol

from oncemq.contracts.adapter import Sink
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.native.progress import Queue
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import message_of
from oncemq_adapters.rocketmq_client.protocol import MOST_UNPACKED, StoredMessage


class Holding(Protocol):
    """What holds messages.

    Attributes:
        generation: its number, higher than that of earlier ones.
        alive: when it ends, all that it holds is void.
    """

    generation: int
    alive: bool

    def finish(self, many: Sequence["Held"]) -> bool:
        """Note that messages are gone for good; False if they were void. `let_pass` has to follow."""
        ...

    def let_pass(self, many: Sequence["Held"]) -> None:
        """Have the library finish messages; may wait for its process."""
        ...


class Held:
    """A message that librocketmq does not finish before it is settled.

    Attributes:
        session: by which it came.
        queue: where it lies.
        stored: as it lies there.
        inbox: of the consumer it is for.
        delivery: the one that may settle it.
        claimed: a settlement is under way.
    """

    __slots__ = ("claimed", "delivery", "inbox", "queue", "session", "stored")

    def __init__(self, session: Holding, queue: Queue, stored: StoredMessage, inbox: "Inbox") -> None:
        self.session = session
        self.queue = queue
        self.stored = stored
        self.inbox = inbox
        self.delivery: Delivery | None = None
        self.claimed = False


class Inbox:
    """Hands over to the sink as long as there is room; safe for all threads.

    Args:
        consumer: the subscription's name.
        topic: the topic's name in the app.
        group: by its real name.
        limit: how many deliveries may be unsettled at once.
        sink: where they go.
    """

    def __init__(self, consumer: str, topic: str, group: str, limit: int, sink: Sink) -> None:
        self.consumer = consumer
        self.topic = topic
        self.group = group
        self.limit = limit
        self.paused = False
        self._sink = sink
        # The same for claims: a delivery is settled, void or given back, one of these.
        self.lock = RLock()
        self._waiting: deque[Held] = deque()
        self.out = 0
        self._unpacked = 0

    @property
    def full(self) -> bool:
        """Whether deliveries that are out hold as many unpacked bytes as they may."""
        return self._unpacked >= MOST_UNPACKED

    @property
    def waits(self) -> bool:
        """Whether something is here that is not delivered."""
        return bool(self._waiting)

    def offer(self, many: Sequence[Held]) -> None:
        """Deliver these now or when there is room."""
        with self.lock:
            self._waiting.extend(held for held in many if held.session.alive)
            self._flush()

    def again(self, held: Held) -> None:
        """Deliver this once more, before all that waits."""
        with self.lock:
            self._waiting.appendleft(held)
            self._flush()

    def left(self, many: Sequence[Held]) -> None:
        """Note that deliveries are out no more."""
        with self.lock:
            self.out -= len(many)
            self._unpacked -= sum([held.stored.unpacked for held in many])
            self._flush()

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        with self.lock:
            self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        with self.lock:
            self.paused = False
            self._flush()

    def lost(self, generation: int, *, tell: bool) -> None:
        """Forget everything: it is void."""
        with self.lock:
            self._waiting.clear()
            self.out = self._unpacked = 0
        if tell:
            self._sink.lost(self.consumer, generation)

    def _flush(self) -> None:
        ready: list[Delivery] = []
        while self._waiting and self.out < self.limit and not self.paused and not self.full:
            held = self._waiting.popleft()
            if not held.session.alive:
                continue
            self.out += 1
            self._unpacked += held.stored.unpacked
            held.claimed = False
            held.delivery = Delivery(message_of(self.topic, held.stored), held, held.session.generation)
            ready.append(held.delivery)
        if ready:
            self._sink.deliver(ready, self.consumer)
