"""Reads messages whole, by the place that librocketmq tells: its own view of them lacks properties and cuts bodies.

It hands over what it pulled at once one by one, and the next only when the last one is finished. So what follows in
the queue is read here as well, and need not wait for that. Nothing is read of a queue in which no callback comes: it
may be somebody else's by now.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.properties import UNIQUE_ID
from oncemq_adapters.rocketmq.remoting import codes
from oncemq_adapters.rocketmq.remoting.brokers import Brokers
from oncemq_adapters.rocketmq.remoting.browsing import browse, browsing_fields
from oncemq_adapters.rocketmq.remoting.connection import Fields
from oncemq_adapters.rocketmq.remoting.frames import MalformedFrame
from oncemq_adapters.rocketmq.remoting.routes import Routes
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage, decode

PULLED = 32
"""Messages that librocketmq pulls at once, at most."""

AHEAD = 2 * PULLED
"""Messages that are read for a callback that waits for the first of them."""

FAR = 4 * PULLED
"""So far behind a callback messages are read while no consumer has more than it wants."""


class WholeMessages:
    """Finds messages.

    Args:
        routes: which brokers have a topic's queues.
        brokers: connections to them.
    """

    def __init__(self, routes: Routes, brokers: Brokers) -> None:
        self._routes = routes
        self._brokers = brokers

    def brokers_of(self, topic: str, number: int) -> Sequence[str]:
        """Return the brokers that have a queue of this number."""
        return [broker for broker, one in self._routes.find(topic).readable if one == number]

    def find_in(
        self, topics: Iterable[str], number: int, offset: int, unique_id: str, stored_at: int
    ) -> tuple[str, str, Sequence[StoredMessage]] | None:
        """Return the broker, the topic, and the message with what follows it; else as `find`."""
        failure: BrokerError | None = None
        for topic in topics:
            try:
                found = self.find(topic, number, offset, unique_id, stored_at)
            except BrokerError as error:
                failure = error
                continue
            if found is not None:
                return found[0], topic, found[1]
        if failure is not None:
            raise failure
        return None

    def find(
        self, topic: str, number: int, offset: int, unique_id: str, stored_at: int
    ) -> tuple[str, Sequence[StoredMessage]] | None:
        """Return the broker, and the message with what follows it; None if it is nowhere any more.

        Args:
            topic: by its real name.
            number: of its queue; several brokers may have one of this number.
            offset: its place there.
            unique_id: as it stands in its properties; empty = there is none.
            stored_at: milliseconds since 1970.

        Raises:
            BrokerError: a broker that may have it does not answer.
        """
        failure: BrokerError | None = None
        alike: tuple[str, Sequence[StoredMessage]] | None = None
        for broker in self.brokers_of(topic, number):
            try:
                found = list(browse(self._brokers.get(broker), topic, number, offset, offset + AHEAD))
            except BrokerError as error:
                failure = error
                continue
            if not found or found[0].offset != offset or found[0].properties.get(UNIQUE_ID, "") != unique_id:
                continue
            if found[0].stored == stored_at:
                return broker, found
            alike = alike or (broker, found)
        if failure is not None:
            raise failure
        return alike

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
            done: told what is there, on the connection's thread; of nothing at the queue's end, and on any failure.
        """

        def answered(error: BrokerError | None, _fields: Fields, body: bytes) -> None:
            found: Sequence[StoredMessage] = ()
            if error is None:
                with suppress(MalformedFrame):
                    found = decode(body, topic, offset + 1)
            done(found)

        connection = self._brokers.alive().get(broker)
        if connection is None:
            done(())
        else:
            connection.submit(codes.PULL_MESSAGE, browsing_fields(topic, number, offset + 1), done=answered)
