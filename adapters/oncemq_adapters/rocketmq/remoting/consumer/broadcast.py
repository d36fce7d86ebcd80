"""Broadcast: every instance reads all queues; how far is kept in the ledger, by the one process of the instance."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from threading import Lock
from time import monotonic

import structlog

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.broadcast import Broadcast
from oncemq.contracts.checks import ConsumerFacts
from oncemq_adapters.rocketmq.errors import FAILURES
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.remoting.consumer.offset_store import Offsets
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue, Progress
from oncemq_adapters.rocketmq.remoting.consumer.queue_locks import QueueLocks
from oncemq_adapters.rocketmq_client.admin import first_offset, last_offset
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.names import FIRST

RENEW_EVERY = 1.0
"""Seconds between two looks whether we are the process of the instance; several in its lease."""

_ASK_AGAIN = 0.5


def place_of(broker: str, number: int) -> str:
    """Return how the ledger names a queue of a topic."""
    return f"{broker}/{number}"


def waiting(
    routes: Routes, brokers: Brokers, topic: TopicOptions, group: str, positions: Mapping[str, int]
) -> int:
    """Return how many messages wait for an instance.

    Args:
        routes: where topics are.
        brokers: asked for the ends of queues.
        topic: the topic.
        group: by its real name.
        positions: how far the instance has read, by queue.
    """
    total = 0
    for broker, number in routes.ask(topic.name).readable:
        connection = brokers.get(broker)
        done = positions.get(place_of(broker, number))
        if done is None:
            start = FIRST if positions else topic.start
            done = first_offset(connection, topic.name, number, start, group)
        total += max(0, last_offset(connection, topic.name, number, group) - done)
    return total


def check_broadcast(facts: ConsumerFacts) -> Iterator[Problem]:
    """Yield what a topic declares that only members who share its messages can have."""
    if not facts.instance:
        return
    if facts.options.get("fifo"):
        yield Problem(
            "fifo: true gives each queue to one member of the group, but with mode: broadcast each instance reads all queues",
            "leave fifo out and let a strategy keep the order of each key, such as state_machine, or leave mode out",
            "topic.fifo",
        )
    if "allocation" in facts.options:
        yield Problem(
            "allocation: divides queues among members, but with mode: broadcast each instance reads all queues",
            "leave allocation out",
            "topic.allocation",
            Severity.WARNING,
        )


class InstanceLock(QueueLocks):
    """Instead of locks of queues: one lease of the whole instance, in the ledger.

    Args:
        broadcast: the instance.
        group: by its real name.
        client: the member's id.
        brokers: not asked.
    """

    def __init__(self, broadcast: Broadcast, brokers: Brokers, group: str, client: str) -> None:
        super().__init__(brokers, group, client, fifo=False)
        self._broadcast = broadcast
        self._asked = float("-inf")
        self.holder = ""
        """Which other process is this instance; empty if none is known."""
        self.ours = False

    def take(self, queue: ProcessQueue) -> bool:  # noqa: ARG002
        """Return whether we are the process of the instance."""
        if not self.ours and monotonic() - self._asked > _ASK_AGAIN:
            self.renew()
        return self.ours

    def renew(self) -> bool:
        """Ask the ledger; returns whether we are the process of the instance.

        Raises:
            BrokerError: the ledger does not answer.
        """
        self._asked = monotonic()
        self.holder = self._broadcast.positions.hold()
        self.ours = not self.holder
        return self.ours

    def end(self) -> None:
        """Let another process of the instance go on."""
        self.ours = False
        self._broadcast.positions.leave()

    def keep(self, broker: str, queues: object) -> None:
        """Do nothing: the lease is not one of queues."""

    def release(self, queue: ProcessQueue) -> None:
        """Do nothing: the lease is not one of queues."""


class LedgerOffsets(Offsets):
    """Offsets of one instance.

    Args:
        broadcast: the instance.
        brokers: asked for the ends of queues.
        routes: where topics are.
        group: by its real name.
    """

    def __init__(self, broadcast: Broadcast, brokers: Brokers, routes: Routes, group: str) -> None:
        super().__init__(brokers, group, lambda _topic, _start: None)
        self._broadcast = broadcast
        self._routes = routes
        self._lock = Lock()
        self._unsaved: dict[ProcessQueue, int] = {}
        self._log = structlog.get_logger("oncemq")
        self._failing = False

    def begin(self, queue: ProcessQueue, start: str | datetime, known: Progress | None) -> None:
        """Find where to go on with a queue: behind what was read, else where a new instance begins.

        A queue that was added while the instance existed begins at its first message.

        Raises:
            BrokerError: a broker or the ledger does not say.
        """
        positions = self._broadcast.positions.read(queue.topic)
        at = positions.get(place_of(queue.broker, queue.number))
        if at is None and known is not None:
            at = known.committed
        if at is None:
            at = self._new(queue, FIRST if positions else start, new=not positions)
        if known is not None and known.committed == at:
            queue.begin(known.prefix, at, known.settled)
        else:
            queue.begin(at, at, ())

    def move(self, queue: ProcessQueue, offset: int) -> None:
        """Have the instance go on at another offset.

        Raises:
            BrokerError: the ledger does not answer.
        """
        self._write({queue: offset})

    def commit(self, queue: ProcessQueue, *, even_if_same: bool = False) -> None:  # noqa: ARG002
        """Note how far it is, for the next `flush`."""
        prefix = queue.prefix()
        if queue.lost or prefix is None or prefix == queue.committed:
            return
        queue.settled_since_commit = 0
        with self._lock:
            self._unsaved[queue] = prefix

    def flush(self) -> None:
        """Store what was noted; a failure is said once, and tried again by the next one."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        try:
            self._write(unsaved)
        except FAILURES as error:
            with self._lock:
                self._unsaved = unsaved | self._unsaved
            if not self._failing:
                self._log.warning("positions of this instance are not saved", error=str(error))
            self._failing = True
        else:
            self._failing = False

    def commit_now(self, queue: ProcessQueue) -> None:
        """Store how far it is.

        Raises:
            BrokerError: the ledger does not answer.
        """
        with self._lock:
            self._unsaved.pop(queue, None)
        prefix = queue.prefix()
        if prefix is not None and prefix != queue.committed:
            self._write({queue: prefix})

    def _new(self, queue: ProcessQueue, start: str | datetime, *, new: bool) -> int:
        """Store where the instance begins, on a new topic for all its queues at once: others must not pass for added ones."""
        topic = queue.topic
        places: list[Place] = [(queue.broker, queue.number)]
        if new and start != FIRST:
            places = list(self._routes.ask(topic).readable)
        found = {
            (topic, place_of(broker, number)): first_offset(
                self._brokers.get(broker), topic, number, start, self._group
            )
            for broker, number in places
        }
        if new:
            self._log.info(
                "this instance is new to a topic",
                instance=self._broadcast.instance,
                topic=topic,
                begins_at=str(start),
            )
        self._broadcast.positions.write(found)
        return found[topic, place_of(queue.broker, queue.number)]

    def _write(self, ends: dict[ProcessQueue, int]) -> None:
        if ends and self._broadcast.positions.write(
            {(queue.topic, place_of(queue.broker, queue.number)): end for queue, end in ends.items()}
        ):
            for queue, end in ends.items():
                queue.committed = end
