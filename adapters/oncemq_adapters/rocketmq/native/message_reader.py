"""Reads messages whole, by the place that librocketmq tells: its own view of them lacks properties and cuts bodies.

It hands over what it pulled at once one by one, and the next only when the last one is finished. So what follows in
the queue is read here as well, and need not wait for that. Nothing is read of a queue in which no callback comes: it
may belong to another member by now.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.errors import FAILURES, Failure
from oncemq_adapters.rocketmq.native.progress import Queue
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import browse, browsing_fields, first_offset
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame
from oncemq_adapters.rocketmq_client.names import FIRST
from oncemq_adapters.rocketmq_client.properties import UNIQUE_ID
from oncemq_adapters.rocketmq_client.protocol import (
    UNPACKED_AT_ONCE,
    Fields,
    StoredMessage,
    decode,
)

PULLED = 32
"""Messages that librocketmq pulls at once, at most."""

AHEAD = 2 * PULLED
"""Messages that are read for a callback that waits for the first of them."""

FAR = 4 * PULLED
"""So far behind a callback messages are read while no consumer has more than it wants."""


class NotFound(BrokerError):
    """A message is not where librocketmq says, and may still be found later."""


class Found(NamedTuple):
    """A message that was looked for, or may be it.

    Args:
        queue: where it lies.
        messages: itself, and what follows it.
    """

    queue: Queue
    messages: Sequence[StoredMessage]


class WholeMessages:
    """Finds messages.

    Args:
        routes: which brokers have a topic's queues.
        brokers: connections to them.
    """

    def __init__(self, routes: Routes, brokers: Brokers) -> None:
        self._routes = routes
        self._brokers = brokers

    def queues_of(self, topics: Iterable[str], number: int) -> Sequence[Queue]:
        """Return the queues of this number; several brokers may have one."""
        return [
            Queue(broker, topic, number)
            for topic in topics
            for broker, queue_number in self._routes.find(topic).readable
            if queue_number == number
        ]

    def find(
        self, topics: Sequence[str], number: int, offset: int, unique_id: str, stored_at: int
    ) -> Sequence[Found]:
        """Return the message; all that may be it where none fits in everything; nothing if it was deleted for its age.

        Args:
            topics: where it may lie, by their real names.
            number: of its queue.
            offset: its place there.
            unique_id: as librocketmq tells it; empty = there is none.
            stored_at: milliseconds since 1970.

        Raises:
            NotFound: it is not where it should be, and nothing says that it was deleted.
            BrokerError: a broker that may have it does not answer.
        """
        found = self._find(topics, number, offset, unique_id, stored_at)
        if found:
            return found
        # The queue may be newer than what we know of the topic.
        for topic in topics:
            with suppress(Denied):
                self._routes.ask(topic)
        found = self._find(topics, number, offset, unique_id, stored_at)
        if not found and not self._deleted(topics, number, offset):
            raise NotFound(
                f"the message at offset {offset} of queue {number} that librocketmq holds cannot be found: no known "
                "broker has it there, and none says that it was deleted"
            )
        return found

    def _find(
        self, topics: Iterable[str], number: int, offset: int, unique_id: str, stored_at: int
    ) -> Sequence[Found]:
        failure: Failure | None = None
        alike: list[Found] = []
        as_old: list[Found] = []
        for queue in self.queues_of(topics, number):
            try:
                found = self._read(queue, offset)
            except FAILURES as error:
                failure = error
                continue
            if not found or found[0].offset != offset:
                continue
            if _may_be(found[0], unique_id):
                if found[0].stored == stored_at:
                    return [Found(queue, found)]
                alike.append(Found(queue, found))
            elif found[0].stored == stored_at:
                as_old.append(Found(queue, found))
        if failure is not None:
            raise failure
        return alike or as_old

    def _deleted(self, topics: Iterable[str], number: int, offset: int) -> bool:
        """Return whether every queue that may have held a message begins behind it now."""
        queues = self.queues_of(topics, number)
        return bool(queues) and all(
            first_offset(self._brokers.get(queue.broker), queue.topic, number, FIRST) > offset
            for queue in queues
        )

    def _read(self, queue: Queue, offset: int) -> Sequence[StoredMessage]:
        connection = self._brokers.get(queue.broker)
        found, unpacked = [], 0
        for message in browse(
            connection, queue.topic, queue.number, offset, offset + AHEAD, open_copy=opened
        ):
            found.append(message)
            unpacked += message.unpacked
            if unpacked >= UNPACKED_AT_ONCE:
                break
        return found

    def after(
        self,
        broker: str,
        topic: str,
        number: int,
        offset: int,
        done: Callable[[Sequence[StoredMessage]], None],
    ) -> None:
        """Have some of what follows an offset read.

        Args:
            broker: by its name.
            topic: by its real name.
            number: of its queue there.
            offset: behind which.
            done: called with the messages, on the connection's thread; with none at the queue's end, and on any failure.
        """

        def answered(error: Failure | None, _fields: Fields, body: bytes) -> None:
            found: Sequence[StoredMessage] = ()
            if error is None:
                with suppress(MalformedFrame):
                    found = decode(body, topic, offset + 1, opened).messages
            done(found)

        connection = self._brokers.alive().get(broker)
        if connection is None:
            done(())
        else:
            connection.submit(codes.PULL_MESSAGE, browsing_fields(topic, number, offset + 1), done=answered)


def _may_be(stored: StoredMessage, unique_id: str) -> bool:
    """Return whether librocketmq may mean this message: it may read one that we cannot, and cuts texts at a NUL."""
    unreadable = bool(stored.trouble) and not stored.properties
    return unreadable or stored.properties.get(UNIQUE_ID, "").partition("\0")[0] == unique_id
