"""Publishing and administration, on connections of their own, so that consuming never waits behind them."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial

from oncemq.contracts.adapter import CONFIRMED, Confirmed, ParkedDeadLetter, Refused
from oncemq.contracts.requests import Answer
from oncemq.errors import BrokerError, BrokerRefused, BrokerUnavailable
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rocketmq.address import Address
from oncemq_adapters.rocketmq.errors import FAILURES, as_broker_error, behind
from oncemq_adapters.rocketmq.names import TopicOptions
from oncemq_adapters.rocketmq.properties import check_size, for_publishing
from oncemq_adapters.rocketmq.remoting.admin.topics_and_groups import ensure_topic, missing
from oncemq_adapters.rocketmq.remoting.producer.answers import answer_from
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import burial_copy
from oncemq_adapters.rocketmq.remoting.withheld_brokers import withheld_brokers
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Routes, TimerThread, spread_of
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.producer import Producer, Requester
from oncemq_adapters.rocketmq_client.protocol import Connection, Frame, Outgoing, producer_heartbeat_body

REFRESH_EVERY = 30.0
"""Seconds between looks at the routes, in the background."""


class Operations:
    """Everything but consuming.

    Args:
        address: how to connect.
        group: how brokers know the producer.
    """

    def __init__(self, address: Address, group: str) -> None:
        self.routes = Routes(address)
        self.brokers = withheld_brokers(
            address,
            self.routes,
            self._hello,
            self._asked,
            self._lost,
        )
        self.producer = Producer(self.brokers, self.routes, group, address.publish_timeout)
        self.account = address.username
        self._group = group
        self._client = f"{socket.gethostname()}@{os.getpid()}@{os.urandom(4).hex()}"
        self._requester = Requester(
            self.brokers, self.routes, self.producer, self._client, group, answer_from
        )
        self._steward = TimerThread("oncemq-rocketmq-desk")
        self._steward.every(REFRESH_EVERY, self._refresh)
        self._steward.start()

    def every(self, seconds: float, job: Callable[[], object]) -> None:
        """Do this again and again on the desk's own thread until it is closed."""
        self._steward.every(seconds, job)

    def publish(
        self, topic: TopicOptions, messages: Sequence[OutgoingMessage], now: datetime
    ) -> Sequence[Confirmed | Refused]:
        """Publish to a topic; returns an answer for each message."""
        try:
            places = self._writable(topic)
        except FAILURES as error:
            gone = isinstance(error, Denied) and error.code == codes.NO_TOPIC
            return [Refused(missing(topic) if gone else as_broker_error(error)) for _ in messages]
        answers = self._send(
            [(message.key, partial(self._outgoing, topic, message, now, places)) for message in messages]
        )
        if any(isinstance(answer, Refused) for answer in answers):
            # The topic may have been deleted or moved; look again next time.
            self.routes.forget(topic.name)
        return answers

    def request(
        self, topic: TopicOptions, message: OutgoingMessage, now: datetime, within: float
    ) -> "Future[Answer]":
        """Publish a request to a topic; returns where its answer arrives.

        Raises:
            BrokerError, RocketMQError: as `RequestingAdapter.request`.
        """
        deadline = time.monotonic() + within
        try:
            outgoing = self._outgoing(topic, message, now, self._writable(topic))
            return self._requester.begin(outgoing, deadline - time.monotonic())
        except FAILURES as error:
            self.routes.forget(topic.name)
            if isinstance(error, Denied) and error.code == codes.NO_TOPIC:
                raise missing(topic) from error
            raise

    def _writable(self, topic: TopicOptions) -> Sequence[Place]:
        """Return the queues of a topic; a missing one is created first where `create: true` is declared."""
        try:
            return self.routes.find(topic.name).writable
        except Denied as denied:
            if denied.code != codes.NO_TOPIC or not topic.create:
                raise
        ensure_topic(self.routes, self.brokers, topic)
        return self.routes.find(topic.name).writable

    def publish_dead_letters(
        self, topic: TopicOptions, group: str, burials: Sequence[ParkedDeadLetter]
    ) -> Sequence[Confirmed | Refused]:
        """Put messages into a group's dead letters; returns an answer for each."""
        try:
            broker = self.routes.find(topic.name).writable[0][0]
        except (*FAILURES, IndexError) as error:
            failure = missing(topic) if isinstance(error, IndexError) else as_broker_error(error)
            return [Refused(failure) for _ in burials]
        makers = [
            (None, partial(burial_copy, burial, topic.name, group, broker, self.producer.unique_id()))
            for burial in burials
        ]
        return self._send(makers)

    def _send(
        self, makers: Sequence[tuple[str | None, Callable[[], Outgoing]]]
    ) -> Sequence[Confirmed | Refused]:
        """Send each maker's message; messages behind a refused one of their key are not sent."""
        answers: list[Confirmed | Refused] = [CONFIRMED] * len(makers)
        good: list[tuple[int, Outgoing]] = []
        refused: dict[str | None, BrokerError] = {}
        for at, (key, make) in enumerate(makers):
            try:
                if key is not None and key in refused:
                    raise behind(refused[key])
                good.append((at, make()))
            except BrokerError as error:
                answers[at] = Refused(error)
                refused.setdefault(key, error)
        errors = self.producer.send([outgoing for _, outgoing in good])
        for (at, _), wrong in zip(good, errors, strict=True):
            if wrong is not None:
                answers[at] = Refused(as_broker_error(wrong))
        return answers

    def close(self, timeout: float) -> None:
        """Disconnect."""
        self._steward.stop(min(timeout, 5.0))
        self._requester.close(
            BrokerUnavailable(
                "the publisher was closed while a request waited for its answer; it may still take effect"
            )
        )
        self.brokers.close()
        self.routes.close()

    def _outgoing(
        self, topic: TopicOptions, message: OutgoingMessage, now: datetime, places: Sequence[Place]
    ) -> Outgoing:
        if not message.body:
            raise BrokerRefused("RocketMQ accepts no message with an empty body")
        properties = for_publishing(message, now, self.producer.unique_id())
        check_size(properties)
        place = None
        if message.key is not None and places:
            place = places[spread_of(message.key, len(places))]
        outgoing = Outgoing(topic.name, message.body, properties, place, born=round(time.time() * 1000))
        outgoing.ordered, outgoing.key = place is not None, message.key
        if message.delay is not None:
            outgoing.delay = message.delay
        return outgoing

    def _asked(self, _broker: str, frame: Frame) -> bytes | None:
        return self._requester.pushed(frame)

    def _lost(self, broker: str) -> None:
        self._requester.lost(broker)

    def _hello(self, connection: Connection) -> None:
        connection.call(codes.HEARTBEAT, {}, producer_heartbeat_body(self._client, self._group))

    def _refresh(self) -> None:
        self.routes.refresh()
        self._requester.look()
        for connection in self.brokers.alive().values():
            try:
                self._hello(connection)
            except FAILURES as error:
                connection.close(error)
