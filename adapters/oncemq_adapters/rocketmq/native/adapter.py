"""The RocketMQ adapter on librocketmq: it consumes by the library, and does all else as the remoting adapter does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Self

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import (
    AdapterScope,
    ConsumerHealth,
    DeadLetterRequest,
    RetryRequest,
    SettleFailed,
    Sink,
    Subscription,
)
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import ConfigError, MissingExtra
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.address import Address, parse_address
from oncemq_adapters.rocketmq.errors import translating
from oncemq_adapters.rocketmq.names import TopicOptions, read_topic
from oncemq_adapters.rocketmq.native import settlement
from oncemq_adapters.rocketmq.native.groups import register
from oncemq_adapters.rocketmq.native.inbox import Held, Inbox
from oncemq_adapters.rocketmq.native.member import Member
from oncemq_adapters.rocketmq.native.options import NativeOptions
from oncemq_adapters.rocketmq.native.progress import Queue
from oncemq_adapters.rocketmq.packages import require_package
from oncemq_adapters.rocketmq.remoting.adapter import RocketMQAdapter
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import refuse_batches
from oncemq_adapters.rocketmq.remoting.broker_checks import examine
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.producer.forwarding import resend
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import dead_copy, retry_copy
from oncemq_adapters.rocketmq_client.names import AVERAGELY
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage

PACKAGE = "rocketmq-client-python"


@translating
class NativeRocketMQAdapter(RocketMQAdapter):
    """Consumes by librocketmq in a process of its own for each group."""

    # Threads of the library overtake each other; a queue's order is not kept.
    capabilities: ClassVar[Capabilities] = replace(
        RocketMQAdapter.capabilities, order=Order.NONE, cumulative_ack=False, replies=False, requests=False
    )

    def __init__(self, address: Address, scope: AdapterScope, native: NativeOptions) -> None:
        super().__init__(address, scope)
        self._native = native
        self._natives: Sequence[Member] = ()
        self._closing = Lock()

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        native, rest = NativeOptions.read(options)
        address = parse_address(url, rest)
        if address.tls is not None:
            raise ConfigError(
                ["tls cannot be used with rocketmq+native://: librocketmq speaks none – use rocketmq://"]
            )
        return cls(address, scope, native)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return the unsafe or impossible settings of this consumer on librocketmq."""
        yield from super().check(facts)
        try:
            require_package(PACKAGE)
            self._native.find()
        except (MissingExtra, ConfigError) as error:
            yield Problem(str(error))
        topic, _ = read_topic(facts.topic, facts.options, self._address.namespace)
        if topic.allocation != AVERAGELY:
            yield Problem(
                "librocketmq divides queues by the rule Averagely alone",
                "use rocketmq:// for this topic",
                "allocation",
            )
        if topic.filter:
            yield Problem("librocketmq filters by tags alone", "use rocketmq:// for this topic", "filter")
        if topic.fifo:
            yield Problem(
                "fifo cannot be kept by rocketmq+native://", "use rocketmq:// for this topic", "fifo"
            )

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return what is missing or different on the brokers for this consumer; groups are created at the start."""
        topic, group = self._place(facts)
        desk = self._opened_desk()
        return [
            *examine(desk, facts, topic, group, makes_groups=True, unwraps=False),
            *self._others(desk, facts),
        ]

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Join every group; returns when the brokers list each member."""
        require_package(PACKAGE)
        library = self._native.find()
        self.prepare(subscriptions)
        connections = self._opened_desk().brokers.alive().values()
        for subscription in subscriptions:
            refuse_batches(connections, self._topic_of(subscription).name)
        members = self._members_of(subscriptions, library, sink)
        with self._closing:
            self._natives = members
            self._consumers = [subscription.consumer for subscription in subscriptions]
        self._watch_pop(self._opened_desk(), subscriptions)
        for member in members:
            member.start()
        self._watch_groups(self._opened_desk(), subscriptions)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Let the library's threads answer that these are done."""
        return settlement.acknowledge(deliveries)

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's retries, then let it go; never is it sent back by the library."""
        return settlement.move(
            [(request.delivery, partial(self._retry, request)) for request in later], self._send
        )

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's dead letters, then let it go."""
        return settlement.move(
            [(request.delivery, partial(self._dead, request)) for request in dead], self._send
        )

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Redeliver messages that were never started, or leave them to other members if nothing is delivered here."""
        return settlement.give_back(deliveries, self._leave)

    def _pause(self, consumer: str) -> None:
        for member in self._natives:
            for inbox in member.inboxes:
                if inbox.consumer == consumer:
                    inbox.pause()

    def _resume(self, consumer: str) -> None:
        for member in self._natives:
            member.resume(consumer)

    def _rows(self) -> Iterator[ConsumerHealth]:
        for member in self._natives:
            yield from member.health()

    def close(self, *, grace: timedelta) -> None:
        """Leave the groups, tell the brokers how far they are, disconnect."""
        with self._closing:
            members, self._natives = self._natives, ()
        for member in members:
            member.close()
        super().close(grace=grace)

    def _register(self, desk: Operations, topic: TopicOptions, group: str) -> None:
        register(desk.routes, desk.brokers, topic, group)

    def _members_of(
        self, subscriptions: Sequence[Subscription], library: str, sink: Sink
    ) -> Sequence[Member]:
        topics: dict[str, list[TopicOptions]] = {}
        inboxes: dict[str, dict[str, Inbox]] = {}
        for subscription in subscriptions:
            topic, group = self._topic_of(subscription), self._group(subscription)
            if topic.fifo:
                raise ConfigError(
                    [
                        f"topic {subscription.topic!r} is fifo, which rocketmq+native:// cannot be – use rocketmq://"
                    ]
                )
            known = inboxes.setdefault(group, {})
            if topic.name in known:
                text = f"consumers {known[topic.name].consumer!r} and {subscription.consumer!r} have the same topic and group"
                raise ConfigError(
                    [f"{text}: each would get a part of the messages – give one another group:"]
                )
            known[topic.name] = Inbox(
                subscription.consumer, subscription.topic, group, subscription.in_flight, sink
            )
            topics.setdefault(group, []).append(topic)
        return [
            Member(self._address, group, topics[group], known, library, self._native.threads, self._resend)
            for group, known in inboxes.items()
        ]

    def _retry(self, later: RetryRequest, held: Held) -> Outgoing:
        return retry_copy(held.stored, held.inbox.group, held.queue.broker, later.headers, later.delay)

    def _dead(self, dead: DeadLetterRequest, held: Held) -> Outgoing:
        return dead_copy(held.stored, held.inbox.group, held.queue.broker, dead.headers)

    def _resend(self, queue: Queue, group: str, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        return resend(
            messages, lambda message: retry_copy(message, group, queue.broker, {}, timedelta(0)), self._send
        )

    def _leave(self, held: Held) -> None:
        for member in self._natives:
            if held.inbox in member.inboxes:
                member.leave_if_idle()
