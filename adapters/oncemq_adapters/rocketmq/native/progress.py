"""Progress of a group in each queue: librocketmq tells brokers every five seconds, and never when its process is killed."""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import NamedTuple

from oncemq_adapters.rocketmq_client.admin import (
    commit_offset,
    committed_offset,
    first_offset,
)
from oncemq_adapters.rocketmq_client.connections import Brokers
from oncemq_adapters.rocketmq_client.names import FIRST
from oncemq_adapters.rocketmq_client.protocol import StoredMessage

MANY = 4096


class Queue(NamedTuple):
    """A queue, by its names on the broker."""

    broker: str
    topic: str
    number: int


class Progress:
    """Settled and unsettled messages, by queue; thread-safe.

    Args:
        group: by its real name.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._lock = Lock()
        self._settled: dict[Queue, set[int]] = {}
        self._open: dict[Queue, dict[int, StoredMessage]] = {}

    def received(self, queue: Queue, messages: Iterable[StoredMessage]) -> None:
        """Note messages that are not settled."""
        with self._lock:
            self._open.setdefault(queue, {}).update((message.offset, message) for message in messages)

    def settled(self, places: Iterable[tuple[Queue, int]]) -> None:
        """Note that the messages at these offsets are settled."""
        with self._lock:
            for queue, offset in places:
                self._open.get(queue, {}).pop(offset, None)
                self._settled.setdefault(queue, set()).add(offset)

    def is_settled(self, queue: Queue, offset: int) -> bool:
        """Return whether a message is settled, and no broker knows that yet: then it may come once more."""
        with self._lock:
            return offset in self._settled.get(queue, ())

    def forget_open(self) -> None:
        """Forget unsettled messages: they are redelivered."""
        with self._lock:
            self._open.clear()

    def move(self, send: Callable[[Queue, Sequence[StoredMessage]], Sequence[StoredMessage]]) -> None:
        """Send what is unsettled before something settled to the group again, so that the settled stays settled.

        Args:
            send: publishes these for the group, and returns those that are confirmed.
        """
        with self._lock:
            gaps = {queue: self._before_settled(queue) for queue in self._open}
        for queue, messages in gaps.items():
            if messages:
                self.settled([(queue, moved.offset) for moved in send(queue, messages)])

    def _before_settled(self, queue: Queue) -> Sequence[StoredMessage]:
        last = max(self._settled.get(queue, ()), default=-1)
        return [stored for offset, stored in sorted(self._open[queue].items()) if offset < last]

    def commit(self, brokers: Brokers, *, only_if_many: bool = False) -> None:
        """Tell the brokers; never beyond a message that has not been settled here.

        Args:
            brokers: connections to them.
            only_if_many: leave out queues of which little has to be remembered.

        Raises:
            BrokerError: a commit failed.
        """
        with self._lock:
            queues = [queue for queue, done in self._settled.items() if len(done) > MANY or not only_if_many]
        for queue in queues:
            connection = brokers.get(queue.broker)
            before = committed_offset(connection, self._group, queue.topic, queue.number)
            if before is None:  # a retry topic without a committed offset
                before = first_offset(connection, queue.topic, queue.number, FIRST)
            at = self._advanced(queue, before)
            if at > before:
                commit_offset(connection, self._group, queue.topic, queue.number, at)

    def _advanced(self, queue: Queue, at: int) -> int:
        """Return the end of the settled prefix, and forget the messages before it."""
        with self._lock:
            done = self._settled[queue]
            while at in done:
                at += 1
            self._settled[queue] = {offset for offset in done if offset >= at}
            return at
