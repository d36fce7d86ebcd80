"""The contract of a broker adapter: deliveries in, settlements out; everything else is the framework's.

An adapter owns its connections and threads. It hands every received message to the `Sink` as a `Delivery`
and is told, from any thread and in any order, what became of it. It never decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, Self

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.capabilities import Capabilities
from oncemq.contracts.checks import ConsumerFacts
from oncemq.message.envelope import Delivery, Message, OutgoingMessage


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one consumer wants from a broker.

    Args:
        consumer: the consumer's name.
        topic: the topic's name in the app.
        group: members with the same group share the messages; every group gets all of them.
        options: the topic's broker options as declared (`queue`, `exchange`, `routing_key` …).
        in_flight: how many deliveries may be unsettled at once.
    """

    consumer: str
    topic: str
    group: str
    options: Mapping[str, Any] = field(default_factory=dict)
    in_flight: int = 1000


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """A delivery that was not settled as asked; `error` is AlreadySettled, DeliveryVoid or a BrokerError."""

    delivery: Delivery
    error: Exception


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """A delivery that shall come back after `delay`, with `headers` added (attempt, first failure …)."""

    delivery: Delivery
    delay: timedelta
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeadLetterRequest:
    """A delivery that shall become a dead letter, with `headers` added (reason, error, attempts …)."""

    delivery: Delivery
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ParkedDeadLetter:
    """A message that was kept elsewhere and shall become a dead letter, with `headers` added as for `DeadLetterRequest`."""

    message: Message
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has the message."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker does not have the message; `error` says why."""

    error: Exception


CONFIRMED = Confirmed()


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """Whether one consumer is really subscribed on a live connection.

    Args:
        consumer: the consumer's name.
        subscribed: the broker is sending it messages (or would, if there were any).
        detail: what is wrong, for people.
    """

    consumer: str
    subscribed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as it lies in the broker.

    Args:
        id: what `replay_dead_letters` and `purge_dead_letters` take; stable while the letter lies there.
        message: original body and headers, the framework's headers included.
        dead_at: when it was dead-lettered, aware.
    """

    id: str
    message: Message
    dead_at: datetime | None


class Sink(Protocol):
    """Where an adapter hands over what it receives; both calls return at once and never raise."""

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Take new deliveries for `consumer`, a subscription's name, in their order: all that came together."""
        ...

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Every unsettled delivery of this and earlier generations is void; of this one only, if `alone`."""
        ...


@dataclass(frozen=True, slots=True)
class AdapterScope:
    """What an adapter is built with, besides its URL and options.

    Args:
        app: the app's name; shown to the broker as the connection's name.
        broker: the broker's name in the app; for logs and errors.
        clock: where time comes from.
    """

    app: str
    broker: str
    clock: Clock


class Settling(Protocol):
    """Whoever is told what became of deliveries: from any thread, in any order, of several subscriptions."""

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Tell the broker that these are done; return those that could not be settled."""
        ...

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Have these come again to this group alone: published with confirmation, then acknowledged.

        Returns those for which it failed; such a delivery is still unsettled unless its error is a SettleError.
        """
        ...

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Put these into the group's dead letters: published with confirmation, then acknowledged."""
        ...

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries that were never started, so that any member may have them at once."""
        ...


class Adapter(Settling, Protocol):
    """One connection to one broker.

    Life: `build`, then either `open` (consume) or `prepare` (publish and administrate only), then `close`.
    """

    capabilities: ClassVar[Capabilities]

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet.

        Args:
            url: as declared, credentials included; never shown in errors or `repr`.
            options: the broker's options as declared, without `url`.
            scope: what the framework lends it.

        Raises:
            ConfigError: URL or options cannot work.
        """
        ...

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what cannot be safe or cannot work about this consumer on this broker; connects to nothing."""
        ...

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect, and make sure that everything the subscriptions need exists; consume nothing.

        Raises:
            BrokerUnavailable: no connection; says which address.
            BrokerRefused: wrong credentials, or something exists and is declared differently; says what.
        """
        ...

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """`prepare`, and start consuming; returns when the broker has confirmed every subscription.

        Connections that are lost later are made anew, for ever, with growing pauses; each loss is told
        by `sink.lost`.
        """
        ...

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Put messages that are no deliveries of ours into the group's dead letters; nothing is acknowledged.

        Returns one answer for each, in order. They lie there with the others, as if `dead_letter` had brought them;
        the subscription has been opened or prepared.
        """
        ...

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic; returns one answer for each message, in order, when the broker has them."""
        ...

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Keep leased deliveries for longer; does nothing where the broker has no leases."""
        ...

    def pause(self, consumer: str) -> None:
        """Receive no more for this consumer until `resume`; what was received stays ours."""
        ...

    def resume(self, consumer: str) -> None:
        """Receive again."""
        ...

    def health(self) -> Sequence[ConsumerHealth]:
        """Return one row for each expected consumer; cheap, never blocks on the network."""
        ...

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters, oldest first, without consuming them; needs `prepare`.

        Letters are read as they are asked for. Some brokers hold back what was yielded until the iterator ends or is
        closed: end it before replaying or purging.
        """
        ...

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again, with fresh attempts; returns how many. Confirmed, then removed."""
        ...

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever; returns how many."""
        ...

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait for the group; None where the broker cannot say."""
        ...

    def close(self, *, grace: timedelta) -> None:
        """Stop consuming, send what has been settled within `grace`, disconnect; unsettled deliveries go back.

        May be called twice, and after a failed `open`.
        """
        ...
