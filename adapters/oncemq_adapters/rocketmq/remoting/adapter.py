"""The RocketMQ adapter over the remoting protocol: which part answers which call of the contract."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Self

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import (
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
from oncemq.contracts.broker_queries import Backlog, PrivateNames
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.requests import Answer
from oncemq.contracts.transactional_messages import Decision, HeldMessages
from oncemq.errors import BrokerError, BrokerUnavailable
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq_adapters.answers import send_answers
from oncemq_adapters.rocketmq.address import Address, parse_address
from oncemq_adapters.rocketmq.checks import ROUTES, check_consumer
from oncemq_adapters.rocketmq.description import RocketMQDescription
from oncemq_adapters.rocketmq.errors import FAILURES, as_broker_error, translating
from oncemq_adapters.rocketmq.names import (
    TopicOptions,
    group_of,
    parse_topic,
    private_names,
)
from oncemq_adapters.rocketmq.remoting.admin import topics_and_groups as administration
from oncemq_adapters.rocketmq.remoting.broker_checks import (
    examine,
    examine_publishing,
    examine_trace,
)
from oncemq_adapters.rocketmq.remoting.consumer import direct_runs, settlement
from oncemq_adapters.rocketmq.remoting.consumer.broadcast import check_broadcast, waiting
from oncemq_adapters.rocketmq.remoting.consumer.group_member import Member, members_of
from oncemq_adapters.rocketmq.remoting.consumer.held_retries import hold_back
from oncemq_adapters.rocketmq.remoting.consumer.message_trace import MessageTrace
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import Token
from oncemq_adapters.rocketmq.remoting.consumer.process_queue import ProcessQueue
from oncemq_adapters.rocketmq.remoting.dead_letters import DeadLetters
from oncemq_adapters.rocketmq.remoting.group_subscriptions import complaints
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.pop_watch import Consumed, PopWatch
from oncemq_adapters.rocketmq.remoting.producer.answers import answer_of
from oncemq_adapters.rocketmq.remoting.producer.forwarding import resend
from oncemq_adapters.rocketmq.remoting.producer.half_messages import HalfMessages
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import dead_copy, retry_copy
from oncemq_adapters.rocketmq_client.admin import connect_all
from oncemq_adapters.rocketmq_client.names import FIRST
from oncemq_adapters.rocketmq_client.producer import LONGEST_DELAY
from oncemq_adapters.rocketmq_client.properties import LONGEST_PROPERTIES
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage

LOOK_EVERY = 60.0
"""Seconds between looks at what other members of the groups subscribe to."""


@translating
class RocketMQAdapter:
    """Consumes as a member of each group; publishes and administrates by connections apart."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=True,
        redelivered_flag=False,
        order=Order.KEY,
        competing=True,
        lease=False,
        cumulative_ack=True,
        browse_dead_letters=True,
        survives_restart=True,
        max_headers=LONGEST_PROPERTIES,
        longest_delay=LONGEST_DELAY,
        transactions=True,
        replies=True,
        requests=True,
        partitioned=True,
        broadcast=True,
    )

    def __init__(self, address: Address, scope: AdapterScope) -> None:
        self._address = address
        self._scope = scope
        self._lock = Lock()
        self._desk: Operations | None = None
        self._trace: MessageTrace | None = None
        self._members: Sequence[Member] = ()
        self._consumers: Sequence[str] = ()
        self._declared: dict[str, Subscription] = {}
        self._broadcasts: set[str] = set()
        self._concerns: Sequence[str] | None = None
        self._pop_watch: PopWatch | None = None

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        return cls(parse_address(url, options), scope)

    def __repr__(self) -> str:
        return f"<RocketMQAdapter {self._scope.broker!r} at {', '.join(self._address.name_servers)}>"

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return the unsafe or impossible settings of this consumer on RocketMQ."""
        self._declared[facts.name] = Subscription(facts.name, facts.topic, facts.group, facts.options)
        if facts.instance:
            self._broadcasts.add(facts.group)
        return [*check_consumer(facts, self._address.namespace), *check_broadcast(facts)]

    def route_options(self, by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the topic's options with the tags of routes."""
        return ROUTES.options(by, values, options)

    def description(self) -> RocketMQDescription:
        """Return what documents say of these brokers."""
        address = self._address
        login, tls = bool(address.username), address.tls is not None
        return RocketMQDescription(address.name_servers, "rocketmq", address.namespace, login=login, tls=tls)

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what is missing or different on the brokers for this consumer."""
        topic, group = self._place(facts)
        desk = self._opened_desk()
        found = [*examine(desk, facts, topic, group, makes_groups=False), *self._others(desk, facts)]
        return [*found, *examine_trace(desk, self._address.trace)]

    def examine_publishing(self, topic: str, options: Mapping[str, Any]) -> Iterable[Problem]:
        """Return what keeps this app from publishing to a topic that it does not consume."""
        return list(examine_publishing(self._opened_desk(), self._topic(topic, options)))

    def concerns(self, subscriptions: Sequence[Subscription]) -> Sequence[str]:
        """Return which members of the groups subscribe to something else."""
        if self._concerns is not None:
            return self._concerns
        return self._differing(self._opened_desk(), subscriptions)

    def private_names(self, subscription: Subscription) -> PrivateNames:
        """Return the group on its topic."""
        return private_names(
            self._address.name_servers, self._group(subscription), self._topic_of(subscription)
        )

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect to name server and brokers, and make sure that the topics exist."""
        parsed = [
            (
                # Where an instance begins is in the ledger.
                self._topic_of(each)
                if each.broadcast is None
                else replace(self._topic_of(each), start=FIRST),
                self._group(each),
            )
            for each in subscriptions
        ]
        desk = self._opened_desk()
        connect_all(desk.routes, desk.brokers)
        for topic, group in parsed:
            administration.ensure_topic(desk.routes, desk.brokers, topic)
            self._register(desk, topic, group)

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Join every group; returns when each member has its share of the queues, or others are slow to give it."""
        self.prepare(subscriptions)
        desk = self._opened_desk()
        self._watch_pop(desk, subscriptions)
        members = members_of(subscriptions, self._address, desk.routes, sink, self._scope.app, self._move)
        with self._lock:
            self._members = members
            self._consumers = [subscription.consumer for subscription in subscriptions]
        self._trace_to(desk, members)
        for member in members:
            member.start()
        self._watch_groups(desk, subscriptions)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Finish these in their queues; the finished prefix is committed soon. Answers are sent before."""
        if any(delivery.answer is not None for delivery in deliveries):
            self._answer(deliveries, failed=False)
        return settlement.acknowledge(deliveries)

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's retries, then finish it; in order, where a queue is one by one."""
        direct_runs.note(later)
        ordered: list[RetryRequest] = []
        free: list[RetryRequest] = []
        for request in later:
            member = self._member_of(request.delivery)
            (ordered if member is not None and member.fifo else free).append(request)
        failed = hold_back(ordered, self._member_of) if ordered else []
        moves = [(request.delivery, partial(self._retry_copy, request)) for request in free]
        return [*failed, *settlement.move(moves, self._send)]

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's dead letters, then finish it."""
        direct_runs.note(dead)
        dead, letters = direct_runs.without_letters(dead)
        moves = [(request.delivery, partial(self._dead_copy, request)) for request in dead]
        failed = settlement.move(moves, self._send)
        if any(request.delivery.answer is not None for request in dead):
            left = {each.delivery for each in failed}
            self._answer([each.delivery for each in dead if each.delivery not in left], failed=True)
        return [*failed, *settlement.acknowledge(letters)]

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Publish messages of other origin to the group's dead letters."""
        desk = self._opened_desk()
        return desk.publish_dead_letters(self._topic_of(subscription), self._group(subscription), burials)

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Redeliver messages that were never started, or leave them to the queue's next owner."""
        free, direct = direct_runs.without_direct(deliveries)
        return [*settlement.give_back(free), *settlement.acknowledge(direct)]

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic; messages of one key go to one queue."""
        desk = self._desk
        if desk is None:
            return [Refused(BrokerUnavailable("the RocketMQ adapter is not connected")) for _ in messages]
        return desk.publish(self._topic(topic, options), messages, self._scope.clock.now())

    def request(
        self, topic: str, options: Mapping[str, Any], message: OutgoingMessage, wait: timedelta
    ) -> "Future[Answer]":
        """Publish to a topic as `publish` does; the broker pushes the answer to this process."""
        desk = self._desk
        if desk is None:
            raise BrokerUnavailable("the RocketMQ adapter is not connected")
        now, within = self._scope.clock.now(), wait.total_seconds()
        return desk.request(self._topic(topic, options), message, now, within)

    def hold_messages(self, ledger: str, decide: Callable[[str], Decision]) -> HeldMessages:
        """Become one of the producers that answer for this ledger's transactions."""
        return HalfMessages(self._address, self._scope, ledger, decide)

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:  # noqa: ARG002
        """Do nothing: RocketMQ leases nothing here."""
        return ()

    def pause(self, consumer: str) -> None:
        """Deliver no more; received deliveries can be settled."""
        if self._pop_watch is not None:
            self._pop_watch.pause(consumer)

    def resume(self, consumer: str) -> None:
        """Deliver again."""
        if self._pop_watch is not None:
            self._pop_watch.resume(consumer)

    def health(self) -> Sequence[ConsumerHealth]:
        """Return whether each consumer is a member of its group on live connections."""
        rows = {row.consumer: row for row in self._rows()}
        if self._pop_watch is not None:
            troubles = self._pop_watch.trouble.items()
            rows |= {
                name: ConsumerHealth(name, subscribed=False, detail=text) for name, text in list(troubles)
            }
        return [
            rows.get(consumer, ConsumerHealth(consumer, subscribed=False, detail="closed"))
            for consumer in self._consumers
        ]

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters of this topic, oldest first; nothing is consumed."""
        yield from self._graveyard(subscription).list(self._topic_of(subscription), limit)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group again."""
        return self._graveyard(subscription).replay(self._topic_of(subscription), ids)

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        return self._graveyard(subscription).purge(self._topic_of(subscription), ids)

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait for the group, its retries that are due included."""
        desk = self._opened_desk()
        topic, broadcast = self._topic_of(subscription), subscription.broadcast
        if broadcast is not None:
            positions = broadcast.positions.read(topic.name)
            return waiting(desk.routes, desk.brokers, topic, self._group(subscription), positions)
        return administration.depth(desk.routes, desk.brokers, topic, self._group(subscription))

    def backlog(self, subscription: Subscription) -> Backlog:
        """Return how many messages wait, and how many of these have been delivered; delayed ones are in neither."""
        if subscription.broadcast is not None:
            return Backlog(self.depth(subscription), unknown="waiting includes unacknowledged messages")
        desk, topic = self._opened_desk(), self._topic_of(subscription)
        return administration.backlog(desk.routes, desk.brokers, topic, self._group(subscription))

    def close(self, *, grace: timedelta) -> None:
        """Leave the groups, send the last commits, disconnect."""
        with self._lock:
            members, self._members = self._members, ()
        deadline = time.monotonic() + grace.total_seconds()
        for member in members:
            member.close()
        if self._trace is not None:
            self._trace.stop()
        with self._lock:
            desk, self._desk = self._desk, None
        if desk is not None:
            desk.close(max(0.1, deadline - time.monotonic()))

    def _trace_to(self, desk: Operations, members: Sequence[Member]) -> None:
        address = self._address
        if not address.trace:
            return
        self._trace = MessageTrace(
            address.trace, address.namespace, desk.producer.send, desk.producer.unique_id
        )
        for window in (window for member in members for window in member.windows):
            window.trace = self._trace
        self._trace.start()

    def _register(self, desk: Operations, topic: TopicOptions, group: str) -> None:
        administration.register(desk.routes, desk.brokers, topic, group)

    def _opened_desk(self) -> Operations:
        with self._lock:
            if self._desk is None:
                group = re.sub(r"[^A-Za-z0-9_-]", "-", f"oncemq-{self._scope.app}")
                self._desk = Operations(self._address, group)
            return self._desk

    def _topic(self, topic: str, options: Mapping[str, Any]) -> TopicOptions:
        return parse_topic(topic, options, self._address.namespace)

    def _others(self, desk: Operations, facts: ConsumerFacts) -> Iterator[Problem]:
        """Yield members of a consumer's group with other subscriptions; an error unless the broker's options allow it."""
        mine = {
            **self._declared,
            facts.name: Subscription(facts.name, facts.topic, facts.group, facts.options),
        }
        allowed = self._address.mixed_subscriptions
        for text in self._differing(
            desk, [subscription for subscription in mine.values() if subscription.group == facts.group]
        ):
            yield Problem(
                text,
                "stop that member, have both do the same, or write another group:; mixed_subscriptions: true at the "
                "broker allows it, for the time of a deployment",
                "group",
                Severity.WARNING if allowed else Severity.ERROR,
            )

    def _differing(self, desk: Operations, subscriptions: Sequence[Subscription]) -> list[str]:
        return complaints(desk, subscriptions, self._address.namespace, self._broadcasts)

    def _watch_groups(self, desk: Operations, subscriptions: Sequence[Subscription]) -> None:
        def look() -> None:
            # An unreachable broker is reported elsewhere; the findings stay until the next check.
            with suppress(*FAILURES):
                self._concerns = self._differing(desk, subscriptions)

        self._concerns = ()
        look()
        desk.every(LOOK_EVERY, look)

    def _watch_pop(self, desk: Operations, subscriptions: Sequence[Subscription]) -> None:
        """Refuse groups that are set to POP, and look from now on; members that broadcast never follow that setting."""
        consumed = [
            Consumed(each.consumer, self._topic_of(each).name, self._group(each))
            for each in subscriptions
            if each.broadcast is None
        ]
        self._pop_watch = PopWatch(desk, consumed, self._pause, self._resume)
        self._pop_watch.start()

    def _topic_of(self, subscription: Subscription) -> TopicOptions:
        return self._topic(subscription.topic, subscription.options)

    def _group(self, subscription: Subscription) -> str:
        return group_of(subscription, self._address.namespace)

    def _place(self, facts: ConsumerFacts) -> tuple[TopicOptions, str]:
        subscription = Subscription(facts.name, facts.topic, facts.group, facts.options)
        return self._topic_of(subscription), self._group(subscription)

    def _graveyard(self, subscription: Subscription) -> DeadLetters:
        desk = self._opened_desk()
        return DeadLetters(desk.routes, desk.brokers, desk.producer, self._group(subscription))

    def _send(self, copies: Sequence[Outgoing]) -> Sequence[BrokerError | None]:
        desk = self._desk
        if desk is None:
            return [BrokerUnavailable("the RocketMQ adapter is closed") for _ in copies]
        answers = desk.producer.send(copies)
        return [None if error is None else as_broker_error(error) for error in answers]

    def _answer(self, deliveries: Sequence[Delivery], *, failed: bool) -> None:
        mine = [delivery for delivery in deliveries if isinstance(delivery.token, Token)]
        send_answers(mine, partial(answer_of, failed=failed), self._send, failed=failed)

    def _retry_copy(self, later: RetryRequest, token: Token) -> Outgoing:
        return retry_copy(token.stored, token.window.group, token.queue.broker, later.headers, later.delay)

    def _dead_copy(self, dead: DeadLetterRequest, token: Token) -> Outgoing:
        return dead_copy(token.stored, token.window.group, token.queue.broker, dead.headers)

    def _move(
        self, queue: ProcessQueue, group: str, messages: Sequence[StoredMessage]
    ) -> Sequence[StoredMessage]:
        return resend(
            messages, lambda message: retry_copy(message, group, queue.broker, {}, timedelta(0)), self._send
        )

    def _member_of(self, delivery: Delivery) -> Member | None:
        token = delivery.token
        if not isinstance(token, Token):
            return None
        return next((member for member in self._members if token.window in member.windows), None)

    def _pause(self, consumer: str) -> None:
        self._each(consumer, Member.pause)

    def _resume(self, consumer: str) -> None:
        self._each(consumer, Member.resume)

    def _rows(self) -> Iterator[ConsumerHealth]:
        for member in self._members:
            yield from member.health()

    def _each(self, consumer: str, what: Callable[[Member, str], None]) -> None:
        for member in self._members:
            if any(window.consumer == consumer for window in member.windows):
                what(member, consumer)
