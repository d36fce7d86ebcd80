"""The RabbitMQ adapter: which part answers which call of the contract."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Self

from pika import BasicProperties

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
from oncemq.contracts.broker_queries import Backlog, PrivateNames
from oncemq.contracts.capabilities import Capabilities, Order
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.requests import Answer
from oncemq.errors import BrokerError, BrokerRefused
from oncemq.message.envelope import Delivery, OutgoingMessage
from oncemq_adapters.answers import send_answers
from oncemq_adapters.rabbitmq.connection.address import Address, parse_address
from oncemq_adapters.rabbitmq.connection.errors import NotTaken, Unconfirmed
from oncemq_adapters.rabbitmq.connection.link import quiet_pika
from oncemq_adapters.rabbitmq.consuming.channel_deliveries import Token
from oncemq_adapters.rabbitmq.consuming.consumer import Consuming
from oncemq_adapters.rabbitmq.description import RabbitMQDescription
from oncemq_adapters.rabbitmq.messages.forwarding import MOST_BYTES
from oncemq_adapters.rabbitmq.publishing import dead_letters, settlement
from oncemq_adapters.rabbitmq.publishing.answers import answer_of
from oncemq_adapters.rabbitmq.publishing.confirms import Publication
from oncemq_adapters.rabbitmq.publishing.copies import (
    burial_copy,
    dead_copy,
    delayed_copy,
    new_message,
)
from oncemq_adapters.rabbitmq.publishing.publisher import Publisher
from oncemq_adapters.rabbitmq.publishing.requests import Requests
from oncemq_adapters.rabbitmq.topology import declare as topology
from oncemq_adapters.rabbitmq.topology.backlog import backlog_of
from oncemq_adapters.rabbitmq.topology.bindings import ROUTES, examine_bindings
from oncemq_adapters.rabbitmq.topology.broker_checks import examine_place
from oncemq_adapters.rabbitmq.topology.checks import check_consumer
from oncemq_adapters.rabbitmq.topology.delays import SilentQueues
from oncemq_adapters.rabbitmq.topology.delivery_limit import is_worn
from oncemq_adapters.rabbitmq.topology.names import (
    MARKER_SUFFIX,
    Place,
    TopicOptions,
    parse_topic,
    place_of,
    private_queues,
    read_topic,
    removable_queues,
)
from oncemq_adapters.rabbitmq.topology.partitions import ensure, remove_partitions
from oncemq_adapters.rabbitmq.topology.policies import NOT_COMPARED, examine_policies
from oncemq_adapters.rabbitmq.topology.rights import missing_rights
from oncemq_adapters.rabbitmq.topology.streams import waiting


class RabbitMQAdapter:
    """One connection that consumes and acknowledges, another that publishes, and short ones to look around."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        delay=True,
        precise_delay=False,
        redelivered_flag=True,
        order=Order.TOPIC,
        competing=True,
        lease=False,
        cumulative_ack=True,
        browse_dead_letters=True,
        survives_restart=True,
        max_headers=MOST_BYTES,
        replies=True,
        requests=True,
    )

    def __init__(self, address: Address, scope: AdapterScope) -> None:
        self._address = address
        self._scope = scope
        self._lock = Lock()
        self._consuming: Consuming | None = None
        self._publisher = Publisher(address, f"{scope.app} (publishing)")
        self._requests = Requests(address, scope.app)
        self._exchanges: set[TopicOptions] = set()
        self._silent = SilentQueues(scope.clock.monotonic)

    @classmethod
    def build(cls, url: str, options: Mapping[str, Any], scope: AdapterScope) -> Self:
        """Make one; connects to nothing yet."""
        quiet_pika()
        return cls(parse_address(url, options), scope)

    def __repr__(self) -> str:
        hosts = ", ".join(map(str, self._address.hosts))
        return f"<RabbitMQAdapter {self._scope.broker!r} at {hosts}>"

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return the unsafe or impossible settings of this consumer on RabbitMQ."""
        return check_consumer(facts, self._address.queue_type)

    def route_options(self, by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the topic's options with the routing keys of routes."""
        return ROUTES.options(by, values, options)

    def highest_priority(self, topic: str, options: Mapping[str, Any]) -> int:
        """Return the `max_priority` of a topic."""
        return read_topic(topic, options, self._address.queue_type)[0].max_priority or 0

    def description(self) -> RabbitMQDescription:
        """Return what documents say of this broker."""
        return RabbitMQDescription(self._address)

    def server_version(self) -> str:
        """Return the broker's name and version."""
        with self._short_connection() as connection:
            properties = connection._impl.server_properties or {}
            return f"{properties.get('product', 'AMQP')} {properties.get('version', '(version not told)')}"

    def examine(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return which queues and exchanges are missing, or declared differently."""
        subscription = Subscription(facts.name, facts.topic, facts.group, facts.options)
        with self._short_connection() as connection:
            place = self._place(subscription)
            return [
                *missing_rights(connection, place, self._address),
                *examine_place(connection, place),
                *examine_policies(place, facts, self._address),
                *examine_bindings(place, self._address),
            ]

    def not_examined(self) -> Iterable[str]:
        """Return that policies are not known, unless the management API is."""
        return () if self._address.management else (NOT_COMPARED,)

    def private_names(self, subscription: Subscription) -> PrivateNames:
        """Return the queues of a group: where it consumes, its retries and its dead letters."""
        return PrivateNames(self._address.place, private_queues(self._place(subscription)))

    def remove_places(self, broker: str, names: Sequence[str]) -> Sequence[str]:
        """Delete a group's own queues, with their messages."""
        if broker != self._address.place:
            return ()
        found = removable_queues(names)
        with self._short_connection() as connection:
            for queue in (queue for queues in found.values() for queue in queues):
                if queue.endswith(MARKER_SUFFIX):
                    remove_partitions(connection, queue)
                topology.remove_queue(connection, queue)
        return list(found)

    def prepare(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect once and declare what the subscriptions need."""
        # Again: the log may have been configured since the adapter was built.
        quiet_pika()
        with self._short_connection() as connection:
            for subscription in subscriptions:
                ensure(connection, self._place(subscription))

    def open(self, subscriptions: Sequence[Subscription], sink: Sink) -> None:
        """Declare, subscribe, and return when every subscription is confirmed."""
        self.prepare(subscriptions)
        places = [(subscription, self._place(subscription)) for subscription in subscriptions]
        consuming = Consuming(self._address, f"{self._scope.app} (consuming)", places, sink, self._announce)
        with self._lock:
            self._consuming = consuming
        consuming.start()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Have the I/O thread acknowledge these, as few frames as possible; answers are sent before."""
        if any(delivery.answer is not None for delivery in deliveries):
            self._answer(deliveries, failed=False)
        return settlement.acknowledge(deliveries)

    def retry(self, later: Sequence[RetryRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's queue of its delay, then acknowledge it."""
        username = self._address.username

        def copy(request: RetryRequest) -> Callable[[Token], Publication]:
            return lambda token: delayed_copy(request, token, username, self._silent)

        return settlement.move([(request.delivery, copy(request)) for request in later], self._send_delayed)

    def dead_letter(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Publish each to the group's dead letters, then acknowledge it."""
        username, now = self._address.username, self._scope.clock.now()

        def copy(request: DeadLetterRequest) -> Callable[[Token], Publication]:
            return lambda token: dead_copy(request, token, username, now)

        failed = settlement.move([(request.delivery, copy(request)) for request in dead], self._send_dead)
        self._answer_failures([request.delivery for request in dead], failed)
        return failed

    def publish_dead_letters(
        self, subscription: Subscription, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Publish messages of other origin to the group's dead letters."""
        place, now = self._place(subscription), self._scope.clock.now()
        copies = [
            burial_copy(burial, place, now, self._scope.app, self._address.username) for burial in burials
        ]
        return [CONFIRMED if error is None else Refused(error) for error in self._send_dead(copies)]

    def give_back(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Requeue deliveries that were never started; one that came back often is copied, or its queue might drop it."""
        worn = [item for item in deliveries if is_worn(item.message)]
        fresh = [item for item in deliveries if not is_worn(item.message)] if worn else deliveries
        failed = settlement.give_back(fresh)
        if worn:
            username = self._address.username
            copies = [RetryRequest(item, timedelta(0), {}) for item in worn]
            failed += settlement.move(
                [
                    (item.delivery, partial(delayed_copy, item, username=username, silent=self._silent))
                    for item in copies
                ],
                self._send_own,
            )
        return failed

    def publish(
        self, topic: str, options: Mapping[str, Any], messages: Sequence[OutgoingMessage]
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic's exchange or queue; a message that no queue takes is refused."""
        options = {"declare": self._address.declare, **options}
        parsed = parse_topic(topic, options, self._address.queue_type)
        try:
            self._ensure_exchange(parsed)
            publications = [self._publication(parsed, message) for message in messages]
        except BrokerError as error:
            return [Refused(error) for _ in messages]
        errors = self._publisher.send(publications, own=False)
        if any(errors):
            # The exchange may have been deleted; look again next time.
            self._exchanges.discard(parsed)
        return [CONFIRMED if error is None else Refused(error) for error in errors]

    def request(
        self, topic: str, options: Mapping[str, Any], message: OutgoingMessage, wait: timedelta
    ) -> "Future[Answer]":
        """Publish to a topic as `publish` does; the answer comes to a queue of this process."""
        deadline = time.monotonic() + wait.total_seconds()
        parsed = parse_topic(topic, {"declare": self._address.declare, **options}, self._address.queue_type)
        self._ensure_exchange(parsed)
        queue, correlation, answer = self._requests.expect(deadline - time.monotonic())
        publication = self._publication(parsed, message)
        publication.properties.reply_to, publication.properties.correlation_id = queue, correlation
        error = self._publisher.send([publication], own=False, within=deadline - time.monotonic())[0]
        if error is not None:
            self._exchanges.discard(parsed)
            raise error
        return answer

    def extend(self, deliveries: Sequence[Delivery], by: timedelta) -> Sequence[SettleFailed]:  # noqa: ARG002
        """Do nothing: RabbitMQ leases nothing."""
        return ()

    def pause(self, consumer: str) -> None:
        """Cancel the broker's subscription; the channel stays for settling."""
        if self._consuming is not None:
            self._consuming.pause(consumer)

    def resume(self, consumer: str) -> None:
        """Subscribe again."""
        if self._consuming is not None:
            self._consuming.resume(consumer)

    def health(self) -> Sequence[ConsumerHealth]:
        """Return whether each consumer is subscribed on a live channel."""
        return self._consuming.health() if self._consuming is not None else ()

    def dead_letters(self, subscription: Subscription, limit: int) -> Iterator[DeadLetter]:
        """Yield the group's dead letters, oldest first; other readers do not see them until this ends."""
        with self._short_connection() as connection:
            yield from dead_letters.browse(connection, self._place(subscription), limit)

    def replay_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Send dead letters to the group's queue again."""
        with self._short_connection() as connection:
            return dead_letters.replay(
                connection, self._place(subscription), ids, self._send_own, self._address.username
            )

    def purge_dead_letters(self, subscription: Subscription, ids: Sequence[str]) -> int:
        """Remove dead letters for ever."""
        with self._short_connection() as connection:
            return dead_letters.purge(connection, self._place(subscription), ids)

    def depth(self, subscription: Subscription) -> int | None:
        """Return how many messages wait in the group's queue and its stream, those of its retry queues left out."""
        place = self._place(subscription)
        with self._short_connection() as connection:
            own = sum(topology.depth_of(connection, queue) for queue in place.queues())
            return own + _in_stream(connection, place, subscription)

    def dead_letter_count(self, subscription: Subscription) -> int:
        """Return how many messages are in the group's dead-letter queue."""
        with self._short_connection() as connection:
            return topology.message_count(connection, self._place(subscription).dead_queue)

    def backlog(self, subscription: Subscription) -> Backlog:
        """Return how many messages are ready, unacknowledged, and in the group's retry queues."""
        place = self._place(subscription)
        with self._short_connection() as connection:
            unread = _in_stream(connection, place, subscription)
            return backlog_of(connection, place, self._address, self._scope.clock.now(), unread)

    def close(self, *, grace: timedelta) -> None:
        """Stop consuming, send the last acknowledgements, disconnect."""
        with self._lock:
            consuming, self._consuming = self._consuming, None
        if consuming is not None:
            consuming.stop(grace)
        self._requests.stop(min(grace, timedelta(seconds=2)))
        self._publisher.stop(min(grace, timedelta(seconds=2)))

    def _place(self, subscription: Subscription) -> Place:
        options = {"declare": self._address.declare, **subscription.options}
        return place_of(replace(subscription, options=options), self._address.queue_type)

    def _short_connection(self) -> Any:
        return topology.connected(self._address, f"{self._scope.app} (administration)")

    def _send_own(self, publications: Sequence[Publication]) -> list[BrokerError | None]:
        return self._publisher.send(publications, own=True)

    def _answer_failures(self, dead: Sequence[Delivery], unsettled: Sequence[SettleFailed]) -> None:
        """Tell requesters of dead letters why; those that are none yet may still be applied."""
        if any(delivery.answer is not None for delivery in dead):
            left = {each.delivery for each in unsettled}
            self._answer([delivery for delivery in dead if delivery not in left], failed=True)

    def _answer(self, deliveries: Sequence[Delivery], *, failed: bool) -> None:
        make = partial(answer_of, app=self._scope.app, failed=failed)
        send_answers(deliveries, make, self._send_answers, failed=failed)

    def _send_answers(self, publications: Sequence[Publication]) -> list[BrokerError | None]:
        return self._publisher.send(publications, own=False)

    def _announce(self, exchange: str, body: bytes) -> BrokerError | None:
        return self._publisher.send([Publication(exchange, "", BasicProperties(), body)], own=False)[0]

    def _send_delayed(self, publications: Sequence[Publication]) -> list[BrokerError | None]:
        """Send retries; a delay queue that does not confirm is replaced at the next try.

        Its declaration blocks the broker's end of the channel for a minute, with all that was sent behind it: so only the
        first one is at fault, and the connection is made again.
        """
        errors = self._send_own(publications)
        for sent, error in zip(publications, errors, strict=True):
            if sent.declare is not None and isinstance(error, Unconfirmed):
                self._silent.note(sent.routing_key)
                self._publisher.reconnect(f"the queue {sent.routing_key!r} did not confirm in time")
                break
        return errors

    def _send_dead(self, publications: Sequence[Publication]) -> list[BrokerError | None]:
        """Send dead letters; a full queue of them is a refusal, since waiting does not make it shorter."""
        errors = self._send_own(publications)
        return [
            BrokerRefused(f"the dead-letter queue {sent.routing_key!r} accepts no more: {error}")
            if isinstance(error, NotTaken)
            else error
            for sent, error in zip(publications, errors, strict=True)
        ]

    def _ensure_exchange(self, topic: TopicOptions) -> None:
        if topic not in self._exchanges:
            with self._short_connection() as connection:
                topology.ensure_exchange(connection, topic)
            self._exchanges.add(topic)

    def _publication(self, topic: TopicOptions, message: OutgoingMessage) -> Publication:
        message_id = message.message_id or uuid.uuid4().hex
        return new_message(topic, message, self._scope.clock.now(), message_id, self._scope.app)


def _in_stream(connection: Any, place: Place, subscription: Subscription) -> int:
    """Return how many messages of its stream a group has not read; 0 without a stream."""
    topic = place.topic
    return waiting(connection, topic.stream, topic.start, subscription.positions) if topic.stream else 0
