"""Contract of a broker adapter: deliveries in, settlements out; the framework does everything else.

An adapter owns its connections and threads. It passes every received message to the `Sink` as a `Delivery`
and receives the outcomes from any thread and in any order. It makes no decisions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, Self

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.broadcast import Broadcast, Positions
from oncemq.contracts.capabilities import Capabilities
from oncemq.contracts.checks import ConsumerFacts
from oncemq.message.envelope import Delivery, Message, OutgoingMessage


@dataclass(frozen=True, slots=True)
class Subscription:
    """One consumer's subscription on a broker.

    Args:
        consumer: the consumer's name.
        topic: the topic's name in the app.
        group: members with the same group share the messages; every group gets all of them.
        options: the topic's broker options as declared (`queue`, `exchange`, `routing_key` …).
        in_flight: how many deliveries may be unsettled at once.
        broadcast: this instance gets all messages; None = members of the group share them. Its messages are acknowledged
            or given back only: retries and dead letters are in the ledger.
        positions: how far the group has read, for brokers that do not keep it, in the app's database; None without one.
    """

    consumer: str
    topic: str
    group: str
    options: Mapping[str, Any] = field(default_factory=dict)
    in_flight: int = 1000
    broadcast: Broadcast | None = None
    positions: Positions | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """A delivery that was not settled as asked; `error` is AlreadySettled, DeliveryVoid or a BrokerError."""

    delivery: Delivery
    error: Exception


@dataclass(frozen=True, slots=True)
class RetryRequest:
    """A delivery to be redelivered after `delay`, with `headers` added (attempt, first failure …)."""

    delivery: Delivery
    delay: timedelta
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeadLetterRequest:
    """A delivery to be dead-lettered, with `headers` added (reason, error, attempts …)."""

    delivery: Delivery
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ParkedDeadLetter:
    """A message kept outside the broker, to be dead-lettered, with `headers` added as for `DeadLetterRequest`."""

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
    """Whether one consumer is subscribed on a live connection.

    Args:
        consumer: the consumer's name.
        subscribed: the broker sends it messages (or would, if there were any).
        detail: the problem, for people.
    """

    consumer: str
    subscribed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as stored in the broker.

    Args:
        id: the argument of `replay_dead_letters` and `purge_dead_letters`; stable while it is stored.
        message: original body and headers, the framework's headers included.
        dead_at: when it was dead-lettered, with time zone.
    """

    id: str
    message: Message
    dead_at: datetime | None


class Sink(Protocol):
    """Receives what an adapter gets from its broker; all calls return at once and never raise."""

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Take new deliveries for `consumer`, a subscription's name, in their order: all that arrived together."""
        ...

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Every unsettled delivery of this and earlier generations is void; only of this generation if `alone`."""
        ...

    def release(self, consumer: str, generation: int) -> Sequence[Delivery]:
        """Run nothing more of this generation, which goes to another member; return the deliveries that waited.

        What runs is settled as usual. A delivery that ran may wait again, so the adapter calls this again until every
        delivery was returned here or settled. Nothing that was returned is settled by the framework.
        """
        ...


@dataclass(frozen=True, slots=True)
class AdapterScope:
    """Context in which an adapter is built, in addition to its URL and options.

    Args:
        app: the app's name; shown to the broker as the connection's name.
        broker: the broker's name in the app; for logs and errors.
        clock: the source of time.
    """

    app: str
    broker: str
    clock: Clock


class Settling(Protocol):
    """Settles deliveries: called from any thread, in any order, for several subscriptions."""

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Acknowledge these to the broker; return those that could not be settled."""
        ...

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Have these redelivered to this group only: published with confirmation, then acknowledged.

        Returns those for which it failed; such a delivery is still unsettled unless its error is a SettleError.
        """
        ...

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Put these into the group's dead letters: published with confirmation, then acknowledged."""
        ...

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return deliveries that were never started, available to any member at once."""
        ...


class Adapter(Settling, Protocol):
    """One connection to one broker.

    Life cycle: `build`, then either `open` (consume) or `prepare` (publish and administrate only), then `close`.
    """

    capabilities: ClassVar[Capabilities]

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Build an adapter; does not connect.

        Args:
            url: as declared, credentials included; never shown in errors or `repr`.
            options: the broker's options as declared, without `url`.
            scope: the context that the framework provides.

        Raises:
            ConfigError: URL or options are not usable.
        """
        ...

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what is unsafe or cannot work about this consumer on this broker; does not connect."""
        ...

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect, and make sure that everything the subscriptions need exists; consumes nothing.

        Raises:
            BrokerUnavailable: no connection; says which address.
            BrokerRefused: wrong credentials, or something exists with a different declaration; says what.
        """
        ...

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Do what `prepare` does, and start consuming; returns when the broker has confirmed every subscription.

        Lost connections are re-established without limit, with growing pauses; each loss is reported
        by `sink.lost`.
        """
        ...

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Put messages that are not our deliveries into the group's dead letters; nothing is acknowledged.

        Returns one answer for each, in order. They are stored as if by `dead_letter`;
        the subscription has been opened or prepared.
        """
        ...

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic; returns one answer for each message, in order, once the broker has them."""
        ...

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Extend the lease of deliveries; does nothing where the broker has no leases."""
        ...

    def pause(self, consumer: str) -> None:
        """Receive no more for this consumer until `resume`; deliveries received so far stay with us."""
        ...

    def resume(self, consumer: str) -> None:
        """Receive messages again."""
        ...

    def health(self) -> Sequence[ConsumerHealth]:
        """Return one row for each expected consumer; cheap, never blocks on the network."""
        ...

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters, oldest first, without consuming them; needs `prepare`.

        Dead letters are read on demand. Some brokers hold back what was yielded until the iterator ends or is
        closed: end it before replaying or purging.
        """
        ...

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again, with fresh attempts, each confirmed, then removed; returns how many."""
        ...

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters permanently; returns how many."""
        ...

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait for the group; None where the broker cannot say."""
        ...

    def close(self, *, grace: timedelta) -> None:
        """Stop consuming, send pending settlements within `grace`, disconnect; unsettled deliveries are returned.

        May be called twice, and after a failed `open`.
        """
        ...
