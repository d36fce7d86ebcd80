"""The Kafka adapter: which part answers which call of the contract."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any, ClassVar, Self

from confluent_kafka import TopicPartition

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
from oncemq.contracts.broker_queries import Backlog, PrivateNames, split_group_on_topic
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable, Unroutable
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq_adapters.kafka.address import Address, parse_address
from oncemq_adapters.kafka.administration import Administration
from oncemq_adapters.kafka.assignment import Window
from oncemq_adapters.kafka.checks import check_consumer, examine
from oncemq_adapters.kafka.dead_letters import DeadLetters
from oncemq_adapters.kafka.description import KafkaDescription
from oncemq_adapters.kafka.group_member import GroupMember
from oncemq_adapters.kafka.names import Place, parse_topic, place_of, private_names
from oncemq_adapters.kafka.producer import Producer
from oncemq_adapters.kafka.records import Record, dead_record, new_record, parts_of
from oncemq_adapters.kafka.settlement import Settlement
from oncemq_adapters.start import LAST


class KafkaAdapter:
    """A consumer of its own for each subscription, one producer for all, and a client for questions."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=False,
        precise_delay=True,
        redelivered_flag=False,
        order=Order.KEY,
        competing=True,
        partitioned=True,
        lease=False,
        outlives_connection=True,
        cumulative_ack=True,
        browse_dead_letters=True,
        survives_restart=True,
    )

    def __init__(self, address: Address, scope: AdapterScope) -> None:
        self._address = address
        self._scope = scope
        self._lock = Lock()
        self._administration: Administration | None = None
        self._producer: Producer | None = None
        self._members: list[GroupMember] = []
        self._expected: tuple[Subscription, ...] = ()
        self._settlement = Settlement(self._send, scope.clock.now, address.retry_retention)

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        return cls(parse_address(url, options), scope)

    def __repr__(self) -> str:
        return f"<KafkaAdapter {self._scope.broker!r} at {self._address.shown}>"

    def member_name(self) -> str | None:
        """Return the option that makes this process a static member, whose name no other may have at the same time."""
        return "member" if self._address.member else None

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return the unsafe or impossible settings of this consumer on Kafka."""
        return check_consumer(facts, self._address)

    def description(self) -> KafkaDescription:
        """Return what documents say of this cluster."""
        return KafkaDescription(self._address)

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what is missing or unsafe at the cluster for this consumer."""
        place = self._place_of(Subscription(facts.name, facts.topic, facts.group, facts.options))
        return list(examine(self._opened()[0], facts, place, self._address.retry_retention))

    def private_names(self, subscription: Subscription) -> PrivateNames:
        """Return the group on its topic."""
        return private_names(self._address, self._place_of(subscription))

    def remove_places(self, broker: str, names: Sequence[str]) -> Sequence[str]:
        """Remove the retries and dead letters of groups."""
        if broker != self._address.place:
            return ()
        removed = []
        for name in names:
            group, topic = split_group_on_topic(name)
            if group and topic:
                place = place_of(Subscription("", topic, group, {}))
                self._opened()[0].delete([place.retries, place.dead])
                removed.append(name)
        return removed

    # Life

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect, and make the topics that are missing; where a new group starts last, its offsets are set."""
        places = [self._place_of(subscription) for subscription in subscriptions]
        administration, _ = self._opened()
        administration.connect()
        for place in places:
            administration.prepare(place)
            if place.topic.start == LAST and not administration.committed(place.group, place.topic.name):
                ends = administration.ends_of_new(place.topic.name)
                administration.set_offsets(
                    place.group, [TopicPartition(place.topic.name, *partition) for partition in ends.items()]
                )
        if not self._members:
            self._expected = tuple(subscriptions)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Join the group of every subscription; returns when each has its first assignment."""
        if self._members:
            raise BrokerRefused(f"Kafka {self._address.shown}: this adapter is open already")
        self.prepare(subscriptions)
        name = f"oncemq-{self._scope.app}"
        for subscription in subscriptions:
            place, window = self._place_of(subscription), Window(subscription.in_flight)
            self._members += [
                GroupMember(self._address, subscription, place, sink, name, window, retries=retries)
                for retries in (False, True)
            ]
        # A rebalance may wait for a member that has died, as long as its session lasts.
        wait = (
            2 * self._address.connect_timeout.total_seconds() + self._address.session_timeout.total_seconds()
        )
        end = time.monotonic() + wait
        for member in self._members:
            member.start()
        for member in self._members:
            member.wait_until_joined(max(0.1, end - time.monotonic()))

    def close(self, *, grace: timedelta) -> None:
        """Leave the groups, with the offsets committed, and disconnect; unsettled deliveries return to their partitions."""
        end = time.monotonic() + grace.total_seconds()
        members = list(self._members)
        for member in members:
            member.stop()
        for member in members:
            member.finish(max(0.5, end - time.monotonic()))
        with self._lock:
            producer, self._producer = self._producer, None
            administration, self._administration = self._administration, None
        if administration is not None:
            administration.close()
        if producer is not None:
            producer.close(max(0.1, end - time.monotonic()))

    def pause(self, consumer: str) -> None:
        """Receive no more for this consumer until `resume`; received deliveries stay ours."""
        for member in self._of(consumer):
            member.pause()

    def resume(self, consumer: str) -> None:
        """Receive again."""
        for member in self._of(consumer):
            member.resume()

    def health(self) -> Sequence[ConsumerHealth]:
        """Return one row for each expected consumer."""
        closed = "not open"
        return [
            next(
                (row for member in self._of(entry.consumer) if not (row := member.health()).subscribed),
                ConsumerHealth(
                    entry.consumer, subscribed=bool(self._members), detail="" if self._members else closed
                ),
            )
            for entry in self._expected
        ]

    # Settling

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Pass these; the offset is committed within a moment."""
        return self._settlement.acknowledge(deliveries)

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's retries, then pass it."""
        return self._settlement.retry(later)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's dead letters, then pass it."""
        return self._settlement.dead_letter(dead)

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Return these to their partitions, in their order."""
        return self._settlement.give_back(deliveries)

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:  # noqa: ARG002
        """Do nothing: deliveries do not expire."""
        return ()

    # Publishing and administration

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic that exists; a broker would make a missing one without a word."""
        name = parse_topic(topic, options, self._address.namespace).name
        try:
            missing = not self._connected()[0].partitions(name)
        except BrokerError as error:
            return [Refused(error) for _ in messages]
        if missing:
            text = f"there is no topic {name!r} at Kafka {self._address.shown}"
            return [Refused(Unroutable(text)) for _ in messages]
        now = self._scope.clock.now()
        late = BrokerRefused("Kafka delays no message: publish it when its time has come")
        records = {
            at: new_record(name, message, now) for at, message in enumerate(messages) if not message.delay
        }
        errors = dict(zip(records, self._send(list(records.values())), strict=True))
        answers = [errors.get(at) if at in records else late for at in range(len(messages))]
        if any(isinstance(error, Unroutable) for error in answers):
            self._connected()[0].forget(name)
        return [CONFIRMED if error is None else Refused(error) for error in answers]

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Put messages of other origin into the group's dead letters."""
        dead, now = self._place_of(subscription).dead, self._scope.clock.now()
        records = [
            dead_record(dead, burial.message, parts_of(burial.message), burial.headers, now)
            for burial in burials
        ]
        return [CONFIRMED if error is None else Refused(error) for error in self._send(records)]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters, oldest first, without consuming them."""
        return self._graveyard(subscription).letters(limit)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again, with fresh attempts."""
        return self._graveyard(subscription).replay(ids)

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        return self._graveyard(subscription).purge(ids)

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages are not passed yet: those that wait, run or are retried."""
        place = self._place_of(subscription)
        return self._lag(place.group, place.topic.name) + self._lag(place.retry_group, place.retries)

    def backlog(self, subscription: Subscription) -> Backlog:
        """Return the messages that are not passed yet; Kafka does not know which of them are delivered."""
        place = self._place_of(subscription)
        ready, retries = self._lag(place.group, place.topic.name), self._lag(place.retry_group, place.retries)
        return Backlog(
            ready=ready,
            retries=retries,
            unknown="unacknowledged: Kafka knows what a group has passed, not what was delivered; these are in ready",
        )

    def _lag(self, group: str, topic: str) -> int:
        administration = self._opened()[0]
        committed = administration.committed(group, topic)
        return sum(
            max(0, end - max(first, committed[number].offset if number in committed else 0))
            for number, (first, end) in administration.spans(topic).items()
        )

    def _graveyard(self, subscription: Subscription) -> DeadLetters:
        return DeadLetters(self._address, self._opened()[0], self._place_of(subscription), self._send)

    def _place_of(self, subscription: Subscription) -> Place:
        return place_of(subscription, self._address.namespace)

    def _of(self, consumer: str) -> list[GroupMember]:
        return [member for member in self._members if member.consumer == consumer]

    def _send(self, records: Sequence[Record]) -> Sequence[BrokerError | None]:
        try:
            producer = self._connected()[1]
        except BrokerError as error:
            return [error for _ in records]
        return producer.send(records)

    def _opened(self) -> tuple[Administration, Producer]:
        with self._lock:
            name = f"oncemq-{self._scope.app}"
            if self._administration is None:
                self._administration = Administration(self._address, name)
            if self._producer is None:
                self._producer = Producer(self._address, name)
            return self._administration, self._producer

    def _connected(self) -> tuple[Administration, Producer]:
        with self._lock:
            if self._administration is None or self._producer is None:
                raise BrokerUnavailable("the Kafka adapter is not connected")
            return self._administration, self._producer
