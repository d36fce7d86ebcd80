"""Prefetch window of one consumer: pulled messages beyond it wait here, and nothing more is pulled meanwhile."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from oncemq.contracts.adapter import Sink
from oncemq.message.envelope import Delivery, Message
from oncemq_adapters.rocketmq.properties import by_stranger, read_message, refuse_unread
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq_client.protocol import MOST_UNPACKED, StoredMessage

ONE_PULL = 32
"""Messages that one pull brings at most."""


class Tracing(Protocol):
    """Told of deliveries."""

    def began(self, deliveries: Iterable[Delivery]) -> None:
        """Note that they are handed over."""
        ...

    def ended(self, group: str, deliveries: Iterable[Delivery], *, fine: bool) -> None:
        """Note that they are settled."""
        ...


Waiting = tuple[ProcessQueue, StoredMessage]


class PrefetchWindow:
    """Hands over to the sink, in order, as long as there is room; safe for any number of threads.

    Args:
        consumer: the subscription's name.
        topic: the topic's name in the app.
        group: by its real name.
        limit: how many deliveries may be unsettled at once.
        sink: where they go.

    Attributes:
        trace: told of deliveries; None = nothing is.
        on_settled: called with (window, queue, count, unpacked bytes) of settled messages; the member's, once it is set.
    """

    def __init__(self, consumer: str, topic: str, group: str, limit: int, sink: Sink) -> None:
        self.consumer = consumer
        self.group = group
        self.paused = False
        self.trace: Tracing | None = None
        self.on_settled: Callable[[PrefetchWindow, ProcessQueue, int, int], None] = PrefetchWindow.settled
        self._topic = topic
        self._limit = limit
        self._sink = sink
        # Held while messages are handed over, so that they arrive in order; taken before the other one.
        self._turn = Lock()
        # Never for long: settling must not wait until other threads have parsed the messages that they add.
        self._lock = Lock()
        self._waiting: deque[Waiting] = deque()
        self._out = 0
        self._unpacked = 0

    @property
    def has_room(self) -> bool:
        """Whether more should be pulled."""
        return (
            not self.paused
            and not self._waiting
            and self._out < self._limit
            and self._unpacked < MOST_UNPACKED
        )

    @property
    def spare(self) -> int:
        """How many more may wait here while none can be delivered."""
        return max(0, max(self._limit, ONE_PULL) - len(self._waiting))

    @property
    def out(self) -> int:
        """How many deliveries are out and unsettled."""
        return self._out

    def offer(self, queue: ProcessQueue, messages: Iterable[StoredMessage]) -> None:
        """Deliver these now or when there is room."""
        with self._turn:
            with self._lock:
                self._waiting.extend([(queue, message) for message in messages])
            self._flush()

    def delivery_of(self, queue: ProcessQueue, message: StoredMessage) -> Delivery:
        """Return a message's delivery."""
        return Delivery(message_of(self._topic, message), Token(self, queue, message), queue.generation)

    def hand_over(self, delivery: Delivery) -> None:
        """Deliver something that counts for nothing here, whether there is room or not."""
        with self._turn:
            self._sink.deliver([delivery], self.consumer)

    def settled(self, queue: ProcessQueue, count: int, unpacked: int) -> None:
        """Note that deliveries of a queue are out no more, and deliver messages that wait for room."""
        self.leave(queue, count, unpacked)
        self.flush()

    def leave(self, queue: ProcessQueue, count: int, unpacked: int) -> bool:
        """Note that deliveries of a queue are out no more; returns whether others wait for room."""
        with self._lock:
            self._leave(queue, count, unpacked)
            return bool(self._waiting)

    def flush(self) -> None:
        """Deliver waiting messages, as far as there is room."""
        with self._turn:
            self._flush()

    def again(self, queue: ProcessQueue, message: StoredMessage) -> None:
        """Deliver something once more, before all that waits."""
        with self._turn:
            with self._lock:
                self._leave(queue, 1, message.unpacked)
                if not queue.lost and not queue.draining:
                    self._waiting.appendleft((queue, message))
            self._flush()

    def drop(self, queue: ProcessQueue, *, lost: bool) -> None:
        """Deliver nothing more of a queue; of a lost one nothing is out any more either."""
        with self._turn:
            with self._lock:
                self._waiting = deque(entry for entry in self._waiting if entry[0] is not queue)
                if lost:
                    self._leave(queue, queue.out[self], queue.unpacked[self])
            self._flush()

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        with self._turn, self._lock:
            self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        with self._turn:
            with self._lock:
                self.paused = False
            self._flush()

    def lost(self, generation: int, *, alone: bool) -> None:
        """Tell the sink that deliveries are void."""
        self._sink.lost(self.consumer, generation, alone=alone)

    def _leave(self, queue: ProcessQueue, count: int, unpacked: int) -> None:
        # After a loss nothing of the queue is counted.
        count = min(count, queue.out[self])
        queue.out[self] -= count
        self._out -= count
        unpacked = min(unpacked, queue.unpacked[self])
        queue.unpacked[self] -= unpacked
        self._unpacked -= unpacked

    def _flush(self) -> None:
        ready = [
            Delivery(message_of(self._topic, stored), Token(self, queue, stored), queue.generation)
            for queue, stored in self._next()
        ]
        if ready:
            if self.trace is not None:
                self.trace.began(ready)
            self._sink.deliver(ready, self.consumer)

    def _next(self) -> Sequence[Waiting]:
        """Return the messages to deliver now, counted as out."""
        with self._lock:
            waiting, room = self._waiting, 0 if self.paused else self._limit - self._out
            found: list[Waiting] = []
            while waiting and len(found) < room and self._unpacked < MOST_UNPACKED:
                queue, message = entry = waiting.popleft()
                if queue.lost or queue.draining:
                    continue
                found.append(entry)
                if message.unpacked:
                    queue.unpacked[self] += message.unpacked
                    self._unpacked += message.unpacked
            self._out += len(found)
            for queue, count in Counter([queue for queue, _ in found]).items():
                queue.out[self] += count
            return found


def message_of(topic: str, stored: StoredMessage) -> Message:
    """Return a stored message as handlers see it; one that cannot be understood is made to be refused."""
    if stored.ours or stored.topic.startswith("%"):
        message = read_message(
            topic, stored.body, stored.properties, stored.born, stored.attempts + 1, stored.head
        )
    else:
        message = read_message(
            topic, stored.body, by_stranger(stored.properties), stored.born, 1, stored.head
        )
    if stored.trouble:
        refuse_unread(message, stored.trouble)
    return message


class Token(NamedTuple):
    """What the adapter needs to settle a delivery.

    Args:
        window: by which it was handed over.
        queue: where it lies.
        stored: as it lies there.
    """

    window: PrefetchWindow
    queue: ProcessQueue
    stored: StoredMessage
