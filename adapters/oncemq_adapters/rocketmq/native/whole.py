"""Reads messages whole, by the place that librocketmq tells: its own view of them lacks properties and cuts bodies.

It hands over what it pulled at once one by one, and the next only when the last one is finished. So what follows in
the queue is read here as well, and need not wait for that.
"""

from collections.abc import Sequence

from oncemq.errors import BrokerError
from oncemq_adapters.rocketmq.properties import UNIQUE_ID
from oncemq_adapters.rocketmq.remoting.brokers import Brokers
from oncemq_adapters.rocketmq.remoting.browsing import browse
from oncemq_adapters.rocketmq.remoting.routes import Routes
from oncemq_adapters.rocketmq.remoting.stored import StoredMessage

PULLED = 32
"""Messages that librocketmq pulls at once, at most."""

AHEAD = 2 * PULLED


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

    def find(
        self, topic: str, number: int, offset: int, unique_id: str
    ) -> tuple[str, Sequence[StoredMessage]] | None:
        """Return the broker, and the message with what follows it; None if it is nowhere any more.

        Raises:
            BrokerError: a broker that may have it does not answer.
        """
        failure: BrokerError | None = None
        for broker in self.brokers_of(topic, number):
            try:
                connection = self._brokers.get(broker)
                found = list(browse(connection, topic, number, offset, offset + AHEAD))
            except BrokerError as error:
                failure = error
                continue
            # Queues of several brokers have the same numbers.
            first = found[0] if found else None
            if (
                first is not None
                and first.offset == offset
                and first.properties.get(UNIQUE_ID, "") == unique_id
            ):
                return broker, found
        if failure is not None:
            raise failure
        return None

    def after(self, broker: str, topic: str, number: int, offset: int) -> Sequence[StoredMessage]:
        """Return what follows an offset.

        Raises:
            BrokerError: the broker does not answer.
        """
        connection = self._brokers.get(broker)
        return list(browse(connection, topic, number, offset + 1, offset + 1 + AHEAD))
