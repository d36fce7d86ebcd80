"""The connection that consumes and acknowledges, with one channel for each subscription."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from oncemq.contracts.adapter import ConsumerHealth, Sink, Subscription
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.connection.link import Link
from oncemq_adapters.rabbitmq.consuming.partitions import Announce, Announcer, PartitionedConsumption
from oncemq_adapters.rabbitmq.consuming.streams import StreamConsumption, StreamKeeper
from oncemq_adapters.rabbitmq.consuming.subscription import Consumption
from oncemq_adapters.rabbitmq.topology import declare as topology
from oncemq_adapters.rabbitmq.topology.names import Place
from oncemq_adapters.rabbitmq.topology.partitions import ensure


class Consuming:
    """Starts every subscription on each new connection.

    Args:
        address: where to connect.
        name: shown to the broker's operators.
        places: subscriptions and their queues.
        sink: receives deliveries and losses.
        announce: publishes what the members of a partitioned group tell each other; returns what went wrong.
    """

    def __init__(
        self,
        address: Address,
        name: str,
        places: Sequence[tuple[Subscription, Place]],
        sink: Sink,
        announce: Announce,
    ) -> None:
        self._address = address
        self._name = name
        self._connection: Any = None
        self._parts: dict[str, Consumption | PartitionedConsumption | StreamConsumption] = {
            subscription.consumer: _kind_of(place)(subscription, place, sink, self._ensure)
            for subscription, place in places
        }
        partitioned = [part for part in self._parts.values() if isinstance(part, PartitionedConsumption)]
        self._announcer = Announcer(partitioned, announce) if partitioned else None
        streams = [part for part in self._parts.values() if isinstance(part, StreamConsumption)]
        self._keeper = StreamKeeper(streams, self._connected) if streams else None
        self._link = Link(address, name, self)
        self._had_connection = False

    def start(self) -> None:
        """Connect, and return when every subscription is confirmed.

        Raises:
            BrokerError: one could not be confirmed in time; says why.
        """
        self._link.start()
        if self._announcer is not None:
            self._announcer.start()
        if self._keeper is not None:
            self._keeper.start()
        seconds = 3 * self._address.connect_timeout.total_seconds()
        for part in self._parts.values():
            part.answered.wait(seconds)
            if not part.health().subscribed:
                raise part.error or BrokerUnavailable(
                    f"RabbitMQ did not confirm the subscription of consumer {part.consumer!r} "
                    f"to queue {part.place.queue!r} within {seconds:.0f} s"
                )

    def pause(self, consumer: str) -> None:
        """Receive no more for this consumer."""
        self._parts[consumer].pause(self._link)

    def resume(self, consumer: str) -> None:
        """Receive again."""
        self._parts[consumer].resume(self._link)

    def health(self) -> list[ConsumerHealth]:
        """Return one row for each subscription."""
        return [part.health() for part in self._parts.values()]

    def stop(self, grace: timedelta) -> None:
        """Receive no more, send the last acknowledgements, disconnect."""
        if self._announcer is not None:
            self._announcer.stop()
        self._link.post(self._finish)
        self._link.stop(grace)
        if self._keeper is not None:
            self._keeper.stop()

    def before_connecting(self) -> None:
        """Need nothing: queues are looked at when a channel finds them missing."""

    def connected(self, connection: Any) -> None:
        """Open a channel for each subscription."""
        for part in self._parts.values():
            part.start(connection, self._link)

    def disconnected(self, error: BrokerError) -> None:
        """Tell every subscription."""
        for part in self._parts.values():
            part.lose(error)
            part.answered.set()

    def _connected(self) -> AbstractContextManager[Any]:
        return topology.connected(self._address, self._name)

    def _ensure(self, place: Place) -> None:
        with self._connected() as connection:
            ensure(connection, place)

    def _finish(self) -> None:
        for part in self._parts.values():
            part.finish()


def _kind_of(place: Place) -> type[Consumption] | type[PartitionedConsumption] | type[StreamConsumption]:
    if place.topic.stream is not None:
        return StreamConsumption
    return PartitionedConsumption if place.is_partitioned else Consumption
