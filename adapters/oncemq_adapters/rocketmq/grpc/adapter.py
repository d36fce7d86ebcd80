"""The RocketMQ adapter through a gRPC proxy: which part answers which call of the contract."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Lock
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
from oncemq.contracts.broker_queries import PrivateNames
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq_adapters.rocketmq.checks import ROUTES
from oncemq_adapters.rocketmq.description import RocketMQDescription
from oncemq_adapters.rocketmq.errors import translating
from oncemq_adapters.rocketmq.grpc.broker_checks import examine
from oncemq_adapters.rocketmq.grpc.checks import check_consumer
from oncemq_adapters.rocketmq.grpc.client import hush
from oncemq_adapters.rocketmq.grpc.copies import (
    burial_copy,
    dead_copy,
    given_back_copy,
    new_message,
    retry_copy,
)
from oncemq_adapters.rocketmq.grpc.dead_letters import LeasedGraveyard, remove_untranslatable_heads
from oncemq_adapters.rocketmq.grpc.groups import LOOK_EVERY, AddedQueues
from oncemq_adapters.rocketmq.grpc.held_leases import Lease, Shelf
from oncemq_adapters.rocketmq.grpc.producer import Outbox, one_by_one
from oncemq_adapters.rocketmq.grpc.provisioning import Places
from oncemq_adapters.rocketmq.grpc.receiver import Receiving
from oncemq_adapters.rocketmq.grpc.requests import Sending
from oncemq_adapters.rocketmq.grpc.settings import Settings, parse_settings
from oncemq_adapters.rocketmq.grpc.settlement import SHORTEST, Settler
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic, leased_retry_topic, parse_proxied
from oncemq_adapters.rocketmq.names import group_of, private_names
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq_client.properties import LONGEST_PROPERTIES


@translating
class RocketMQGrpcAdapter:
    """Receives by a SimpleConsumer for each subscription; publishes by a Producer of its own."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=False,
        redelivered_flag=True,
        order=Order.NONE,
        competing=True,
        lease=True,
        outlives_connection=True,
        cumulative_ack=True,
        browse_dead_letters=True,
        survives_restart=True,
        max_headers=LONGEST_PROPERTIES,
    )

    def __init__(self, settings: Settings, scope: AdapterScope) -> None:
        hush()
        self._settings = settings
        self._scope = scope
        self._lock = Lock()
        self._outbox: Outbox | None = None
        self._desk: Operations | None = None
        self._receiving: dict[Shelf, Receiving] = {}
        self._consumers: Sequence[str] = ()
        self._settler = Settler(
            lambda shelf: self._receiving[shelf].client,
            self._send,
            settings.shown,
            settings.connect_timeout.total_seconds(),
        )

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        return cls(parse_settings(url, options), scope)

    def __repr__(self) -> str:
        return f"<RocketMQGrpcAdapter {self._scope.broker!r} at {self._settings.shown}>"

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return the unsafe or impossible settings of this consumer behind a proxy."""
        return check_consumer(facts, self._settings)

    def route_options(self, by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the topic's options with the tags of routes."""
        return ROUTES.options(by, values, options)

    def description(self) -> RocketMQDescription:
        """Return what documents say of this proxy and its brokers."""
        settings = self._settings
        return RocketMQDescription(
            settings.endpoints,
            "rocketmq+grpc",
            settings.namespace,
            login=bool(settings.username),
            tls=settings.tls,
            retries=leased_retry_topic,
        )

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what is missing or different at the proxy and its brokers for this consumer."""
        subscription = Subscription(facts.name, facts.topic, facts.group, facts.options)
        outbox, desk = self._opened()
        topic, group = self._topic(facts.topic, facts.options), self._group(subscription)
        return list(examine(self._settings, Places(outbox.exists, desk), desk, facts, topic, group))

    def private_names(self, subscription: Subscription) -> PrivateNames:
        """Return the group on its topic."""
        return private_names(self._settings.endpoints, self._group(subscription), self._plain(subscription))

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect to the proxy and the name servers, and make sure that topics and the groups' places exist."""
        parsed = [
            (self._topic(subscription.topic, subscription.options), self._group(subscription))
            for subscription in subscriptions
        ]
        outbox, desk = self._opened()
        places = Places(outbox.exists, desk)
        outbox.welcome()
        places.connect()
        for topic, group in parsed:
            places.prepare(topic, group)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Receive for every subscription; returns when the proxy knows them all."""
        self.prepare(subscriptions)
        for subscription in subscriptions:
            topic = self._topic(subscription.topic, subscription.options)
            shelf = Shelf(
                subscription.consumer,
                self._group(subscription),
                topic.name,
                subscription.in_flight,
                sink,
                self._scope.clock,
                fifo=topic.fifo,
            )
            unblock = None
            if topic.fifo and self._desk is not None:
                unblock = partial(
                    remove_untranslatable_heads, self._desk, topic, shelf.group, subscription.consumer
                )
            self._receiving[shelf] = Receiving(self._settings, topic, shelf, self._let_go, unblock)
        self._consumers = [subscription.consumer for subscription in subscriptions]
        if self._desk is not None:
            groups = [
                (self._topic(subscription.topic, subscription.options), self._group(subscription))
                for subscription in subscriptions
            ]
            self._desk.every(LOOK_EVERY, AddedQueues(self._desk, groups).look)
        for receiving in self._receiving.values():
            receiving.start()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Finish these, many in one question."""
        return self._settler.acknowledge(deliveries)

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's retries of the topic, then finish it; a fifo topic's come again in their place."""
        ordered = [request for request in later if _fifo(request.delivery)]
        free = [request for request in later if not _fifo(request.delivery)]
        failed = self._settler.postpone([(request.delivery, request.delay) for request in ordered])
        return failed + self._settler.move(
            [(request.delivery, partial(_later_copy, request)) for request in free]
        )

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's dead letters, one after the other to keep their order, then finish it."""
        moves = [(request.delivery, partial(_dead_copy, request)) for request in dead]
        return [failed for move in moves for failed in self._settler.move([move])]

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Publish messages of other origin to the group's dead letters."""
        topic, group = self._topic(subscription.topic, subscription.options), self._group(subscription)
        return self._publish([partial(burial_copy, burial, topic.name, group) for burial in burials])

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Have these redelivered at once, to any member; those of a fifo topic in their order."""
        failed = self._settler.postpone([(delivery, SHORTEST) for delivery in deliveries if _fifo(delivery)])
        free = [delivery for delivery in deliveries if not _fifo(delivery)]
        return failed + self._settler.move([(delivery, _given_back_copy) for delivery in free])

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic; on a fifo one messages of a key keep their order."""
        parsed = self._topic(topic, options)
        now = self._scope.clock.now()
        makers = [partial(new_message, parsed, message, now) for message in messages]
        if not parsed.fifo:
            return self._publish(makers)
        return one_by_one([message.key for message in messages], makers, self._publish)

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:
        """Make leases last so long from now at least."""
        return self._settler.extend(deliveries, by, self._scope.clock.monotonic())

    def pause(self, consumer: str) -> None:
        """Request nothing more; received deliveries can be settled."""
        self._each(consumer, Shelf.pause)

    def resume(self, consumer: str) -> None:
        """Ask again."""
        self._each(consumer, Shelf.resume)

    def health(self) -> Sequence[ConsumerHealth]:
        """Return whether the proxy gives each consumer messages."""
        rows = {row.consumer: row for row in [receiver.health() for receiver in self._receiving.values()]}
        return [
            rows.get(consumer, ConsumerHealth(consumer, subscribed=False, detail="closed"))
            for consumer in self._consumers
        ]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters of this topic, oldest first; nothing is consumed."""
        yield from self._graveyard(subscription).list(self._plain(subscription), limit)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again."""
        return self._graveyard(subscription).replay(self._plain(subscription), ids)

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        return self._graveyard(subscription).purge(self._plain(subscription), ids)

    def depth(self, subscription: Subscription) -> int | None:  # noqa: ARG002
        """Return None: offsets count leased messages, not finished ones."""
        return None

    def close(self, *, grace: timedelta) -> None:
        """Receive no more, return unsettled deliveries, disconnect."""
        deadline = time.monotonic() + grace.total_seconds()
        receiving = list(self._receiving.values())
        for receiver in receiving:
            receiver.stop()
        for receiver in receiving:
            held = receiver.finish(max(0.1, deadline - time.monotonic()))
            self._let_go(receiver.shelf, held)
        for receiver in receiving:
            receiver.disconnect()
        with self._lock:
            outbox, self._outbox = self._outbox, None
            desk, self._desk = self._desk, None
        if outbox is not None:
            outbox.close()
        if desk is not None:
            desk.close(1.0)

    def _opened(self) -> tuple[Outbox, Operations | None]:
        with self._lock:
            if self._outbox is None:
                self._outbox = Outbox(self._settings)
            if self._desk is None and self._settings.administration is not None:
                group = re.sub(r"[^A-Za-z0-9_-]", "-", f"oncemq-{self._scope.app}")
                self._desk = Operations(self._settings.administration, group)
            return self._outbox, self._desk

    def _topic(self, topic: str, options: Mapping[str, Any]) -> ProxiedTopic:
        return parse_proxied(topic, options, self._settings.namespace)

    def _plain(self, subscription: Subscription) -> Any:
        return self._topic(subscription.topic, subscription.options).options

    def _group(self, subscription: Subscription) -> str:
        return group_of(subscription, self._settings.namespace)

    def _graveyard(self, subscription: Subscription) -> LeasedGraveyard:
        _, desk = self._opened()
        if desk is None:
            raise BrokerRefused(
                "gRPC has no way to look at dead letters without taking them – write name_servers: [host:9876] at the "
                "broker, where its name servers listen"
            )
        topic = self._topic(subscription.topic, subscription.options)
        return LeasedGraveyard(desk, self._group(subscription), topic, self._send)

    def _publish(self, makers: Sequence[Callable[[], Sending]]) -> Sequence[Confirmed | Refused]:
        answers: list[Confirmed | Refused] = [CONFIRMED] * len(makers)
        good: list[tuple[int, Sending]] = []
        for at, make in enumerate(makers):
            try:
                good.append((at, make()))
            except BrokerError as error:
                answers[at] = Refused(error)
        errors = self._send([sending for _, sending in good]) if good else ()
        for (at, _), wrong in zip(good, errors, strict=True):
            if wrong is not None:
                answers[at] = Refused(wrong)
        return answers

    def _send(self, copies: Sequence[Sending]) -> Sequence[BrokerError | None]:
        outbox = self._outbox
        if outbox is None:
            return [BrokerUnavailable("the RocketMQ adapter is not connected") for _ in copies]
        return outbox.send(copies)

    def _let_go(self, shelf: Shelf, held: Sequence[Delivery]) -> None:
        self._settler.let_go(shelf, held, given_back_copy)

    def _each(self, consumer: str, what: Callable[[Shelf], None]) -> None:
        for shelf in self._receiving:
            if shelf.consumer == consumer:
                what(shelf)


def _fifo(delivery: Delivery) -> bool:
    return isinstance(delivery.token, Lease) and delivery.token.shelf.fifo


def _later_copy(later: RetryRequest, token: Lease) -> Sending:
    return retry_copy(token.shelf, token.raw, later.headers, later.delay)


def _dead_copy(dead: DeadLetterRequest, token: Lease) -> Sending:
    return dead_copy(token.shelf, token.raw, dead.headers)


def _given_back_copy(token: Lease) -> Sending:
    return given_back_copy(token.shelf, token.raw)
