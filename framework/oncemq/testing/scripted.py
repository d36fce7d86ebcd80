"""Adapter in memory that follows a test's orders and records its calls; it has no threads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition
from typing import Any, ClassVar, Self

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import (
    CONFIRMED,
    AdapterScope,
    Confirmed,
    ConsumerHealth,
    DeadLetter,
    DeadLetterRequest,
    ParkedDeadLetter,
    Refused,
    RetryRequest,
    SettleFailed,
    Sink,
    Subscription,
)
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import AlreadySettled, BrokerUnavailable, DeliveryVoid
from oncemq.message.envelope import Delivery, Message, OutgoingMessage


@dataclass(frozen=True, slots=True)
class Published:
    """One published message, and its topic."""

    topic: str
    message: OutgoingMessage


class ScriptedAdapter:
    """Delivers on the test's call, in the test's thread, and records every settlement in order.

    Attributes:
        acknowledged: deliveries, in the order they were acknowledged.
        grace: what `close` was given.
        retried: retry requests, in order.
        dead: dead-lettered messages, in order.
        buried: messages dead-lettered without having been delivered, in order.
        given_back: deliveries returned unstarted.
        extended: deliveries whose lease was extended.
        published: published messages.
        refused: every settlement that was answered with an error.
        paused: consumers that are paused now.
        closed: whether `close` was called.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=True,
        redelivered_flag=True,
        order=Order.TOPIC,
        competing=False,
        lease=False,
        cumulative_ack=False,
        browse_dead_letters=False,
        survives_restart=False,
    )

    def __init__(self) -> None:
        self.acknowledged: list[Delivery] = []
        self.retried: list[RetryRequest] = []
        self.dead: list[DeadLetterRequest] = []
        self.buried: list[ParkedDeadLetter] = []
        self.given_back: list[Delivery] = []
        self.extended: list[Delivery] = []
        self.published: list[Published] = []
        self.refused: list[SettleFailed] = []
        self.paused: set[str] = set()
        self.closed = False
        self.grace = timedelta(0)
        self.subscriptions: tuple[Subscription, ...] = ()
        self._sink: Sink | None = None
        self._generation = 1
        self._void_below = 1
        self._failures: dict[str, list[Exception]] = {}
        self._changed = Condition()

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Build an adapter; the declaration is ignored."""
        del url, options, scope
        return cls()

    # Orders of the test

    def deliver(self, body: bytes, *, consumer: str | None = None, **fields: Any) -> Delivery:
        """Hand `body` to the sink as a new delivery; `fields` are those of `Message`."""
        if self._sink is None or not self.subscriptions:
            raise RuntimeError("deliver() before open(): no consumer is subscribed")
        subscription = next(
            candidate for candidate in self.subscriptions if consumer in (None, candidate.consumer)
        )
        message = Message(**{"topic": subscription.topic, "body": body, **fields})
        delivery = Delivery(message, token=subscription.consumer, generation=self._generation)
        self._sink.deliver([delivery], subscription.consumer)
        return delivery

    def fail_next(self, call: str, error: Exception | None = None, times: int = 1) -> None:
        """Let the next `times` deliveries given to `call` fail (`acknowledge`, `retry`, `publish`, `open` …)."""
        error = error or BrokerUnavailable(f"{call} fails because the test ordered it")
        self._failures.setdefault(call, []).extend([error] * times)

    def lose_connection(self) -> None:
        """Make every delivery so far void and notify the sink; later ones belong to a new generation."""
        with self._changed:
            lost, self._generation = self._generation, self._generation + 1
            self._void_below = self._generation
        for subscription in self.subscriptions:
            if self._sink is not None:
                self._sink.lost(subscription.consumer, lost)

    def wait_until(self, reached: Callable[[Self], bool], timeout: float = 10.0) -> None:
        """Wait until `reached(adapter)`, checked after each settlement.

        Raises:
            AssertionError: it was not reached within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: reached(self), timeout):
                raise AssertionError(f"not reached after {timeout} s: {self.summary()}")

    def summary(self) -> str:
        """Return the counts of everything recorded, for messages of failed tests."""
        return (
            f"{len(self.acknowledged)} acknowledged, {len(self.retried)} retried, {len(self.dead)} dead, "
            f"{len(self.given_back)} given back, {len(self.refused)} refused"
        )

    # Calls of the framework

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return no problems."""
        del facts
        return ()

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Remember the subscriptions."""
        self._raise_if_ordered("prepare")
        self.subscriptions = tuple(subscriptions)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Remember subscriptions and sink; `deliver` works from now on."""
        self._raise_if_ordered("open")
        self.subscriptions, self._sink = tuple(subscriptions), sink

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Record acknowledgements."""
        return self._settle(
            "acknowledge", [(delivery, delivery) for delivery in deliveries], self.acknowledged
        )

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Record retries; nothing is redelivered by itself."""
        return self._settle("retry", [(request.delivery, request) for request in later], self.retried)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Record dead letters."""
        return self._settle("dead_letter", [(request.delivery, request) for request in dead], self.dead)

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Record dead letters of other origin."""
        del subscription
        return self._confirm("publish_dead_letters", burials, self.buried)

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Record deliveries returned unstarted."""
        return self._settle("give_back", [(delivery, delivery) for delivery in deliveries], self.given_back)

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Record messages; confirmed unless a failure was ordered."""
        del options
        return self._confirm("publish", [Published(topic, message) for message in messages], self.published)

    def _confirm(self, call: str, entries: Sequence[Any], record: list[Any]) -> list[Confirmed | Refused]:
        answers: list[Confirmed | Refused] = []
        with self._changed:
            for entry in entries:
                error = self._ordered(call)
                if error is None:
                    record.append(entry)
                answers.append(CONFIRMED if error is None else Refused(error))
            self._changed.notify_all()
        return answers

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Record extensions; may be called while a delivery is unsettled only."""
        del by
        with self._changed:
            self.extended.extend(deliveries)
            return [
                SettleFailed(delivery, error)
                for delivery in deliveries
                if (error := self._reason_against(delivery))
            ]

    def pause(self, consumer: str) -> None:
        """Record that the consumer wants no more; `deliver` still works."""
        with self._changed:
            self.paused.add(consumer)
            self._changed.notify_all()

    def resume(self, consumer: str) -> None:
        """Record that the consumer wants more."""
        with self._changed:
            self.paused.discard(consumer)
            self._changed.notify_all()

    def health(self) -> Sequence[ConsumerHealth]:
        """Return all consumers as subscribed while open."""
        is_open = self._sink is not None and not self.closed
        return [
            ConsumerHealth(subscription.consumer, subscribed=is_open) for subscription in self.subscriptions
        ]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield nothing: the test looks at `dead`."""
        del subscription, limit
        return iter(())

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Return 0."""
        del subscription, ids
        return 0

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Return 0."""
        del subscription, ids
        return 0

    def depth(self, subscription: Subscription) -> int | None:
        """Return None: there is no queue."""
        del subscription
        return None

    def close(self, *, grace: timedelta) -> None:
        """Remember that it was closed; later settlements are void."""
        with self._changed:
            self.grace = grace
            self.closed = True
            self._void_below = self._generation + 1
            self._changed.notify_all()

    def _settle(
        self, call: str, entries: Sequence[tuple[Delivery, Any]], record: list[Any]
    ) -> list[SettleFailed]:
        failed: list[SettleFailed] = []
        with self._changed:
            for delivery, entry in entries:
                error = self._reason_against(delivery) or self._ordered(call)
                if error is None:
                    delivery.settled = True
                    record.append(entry)
                else:
                    failed.append(SettleFailed(delivery, error))
            self.refused.extend(failed)
            self._changed.notify_all()
        return failed

    def _reason_against(self, delivery: Delivery) -> Exception | None:
        if delivery.settled:
            return AlreadySettled(f"{delivery!r} had been settled before")
        if delivery.generation < self._void_below:
            return DeliveryVoid(f"{delivery!r} is void: its connection is gone")
        return None

    def _ordered(self, call: str) -> Exception | None:
        ordered = self._failures.get(call)
        return ordered.pop(0) if ordered else None

    def _raise_if_ordered(self, call: str) -> None:
        if error := self._ordered(call):
            raise error
