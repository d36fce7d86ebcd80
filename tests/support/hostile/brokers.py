"""Brokers to which hostile producers publish: each knows how its own protocol says it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope, Confirmed, Subscription
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq_adapters.embedded import EmbeddedAdapter
from oncemq_adapters.rabbitmq import RabbitMQAdapter
from oncemq_adapters.rabbitmq.messages.field_tables import (
    Unreadable,
    join_table,
    split_properties,
    split_table,
)
from oncemq_adapters.rabbitmq.messages.forwarding import replayed
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.properties import TAGS_HEADER
from oncemq_adapters.rocketmq.remoting.operations import Operations
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import REMOVED
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.properties import to_text
from oncemq_adapters.rocketmq_client.protocol import Outgoing, send_fields
from support.brokers.rabbitmq import connect
from support.hostile.amqp import send
from support.hostile.odd_messages import TEXTS, Odd, Rocket, amqp, odd_body, odd_headers, rocket

SCOPE = AdapterScope("tests", "hostile", SystemClock())
_TRAVELS_NOT = ("delivery_mode", "expiration", "user_id", "headers")


class HostileBroker(ABC):
    """One broker under attack.

    Attributes:
        topic: a fresh one.
        options: the topic's.
    """

    topic: str
    options: dict[str, Any]

    def subscription(self, consumer: str, prefetch: int = 1000) -> Subscription:
        """Return what a consumer of the topic wants."""
        return Subscription(consumer, self.topic, f"{self.topic}-{consumer}", self.options, prefetch)

    @abstractmethod
    def adapter(self) -> Adapter:
        """Return a new adapter."""

    @abstractmethod
    def odd(self, random: Random, number: int) -> Odd:
        """Return a message that the broker lets through."""

    @abstractmethod
    def send(self, odd: Iterable[Odd]) -> Sequence[Odd]:
        """Publish these, and return those that the broker took."""

    def same(self, message: Message) -> Any:
        """Return what of a message must be the same after a retry, a death and a replay."""
        own = {name: text for name, text in message.headers.items() if not name.startswith(names.PREFIX)}
        return message.body, message.message_id, message.keys, tuple(sorted(own.items()))

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class HostileEmbedded(HostileBroker):
    """The embedded broker takes any text."""

    def __init__(self, folder: Path) -> None:
        self.topic = f"odd-{uuid4().hex[:8]}"
        self.options = {}
        self._url = f"embedded:///{folder / 'broker.db'}"
        self._producer = self.adapter()
        self._producer.prepare([])

    def adapter(self) -> Adapter:
        """Return an adapter on the same file."""
        return EmbeddedAdapter.build(self._url, {}, SCOPE)

    def odd(self, random: Random, number: int) -> Odd:
        """Return any text as headers, key and id, half surrogate pairs included."""
        texts = (*TEXTS, "\ud800", "\udcff\udcfe")
        more = {random.choice(texts): random.choice(texts)} if random.random() < 0.5 else {}
        key = random.choice([None, random.choice(texts)])
        message_id = random.choice([None, random.choice(texts) or None])
        return Odd(odd_body(random, number), ({**odd_headers(random), **more}, key, message_id))

    def send(self, odd: Iterable[Odd]) -> Sequence[Odd]:
        """Publish by the adapter."""
        messages = list(odd)
        sent = [OutgoingMessage(each.body, *each.way) for each in messages]
        answers = self._producer.publish(self.topic, self.options, sent)
        return [each for each, answer in zip(messages, answers, strict=True) if isinstance(answer, Confirmed)]

    def close(self) -> None:
        """Close the file."""
        self._producer.close(grace=timedelta(0))


class HostileRabbitMQ(HostileBroker):
    """RabbitMQ, whose properties are written byte by byte."""

    def __init__(self, url: str, queue_type: str = "classic") -> None:
        self.topic = f"odd-{uuid4().hex[:8]}"
        self.options = {"exchange": f"{self.topic}-x", "queue_type": queue_type}
        self._url = url
        self._connection = connect(url)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def adapter(self) -> Adapter:
        """Return an adapter for the server."""
        return RabbitMQAdapter.build(self._url, {}, SCOPE)

    def odd(self, random: Random, number: int) -> Odd:
        """Return properties of every type."""
        return amqp(random, number)

    def send(self, odd: Iterable[Odd]) -> Sequence[Odd]:
        """Publish with a confirmation each."""
        messages = list(odd)
        for each in messages:
            send(self._channel, self.options["exchange"], self.topic, each.way, each.body)
        return messages

    def same(self, message: Message) -> Any:
        """Return the body and each property as its bytes, but for what no copy may keep."""
        assert message.raw is not None
        copy = replayed(message.raw, message.body, "")
        raw = copy.properties.raw
        try:
            found = split_properties(raw)
            table = split_table(found.get("headers", bytes(4)))
        except Unreadable:
            return message.body, raw
        kept = {name: value for name, value in found.items() if name not in _TRAVELS_NOT}
        broker = (b"x-delivery-count", b"x-acquired-count")
        own = [
            each
            for each in table
            if each.name not in broker and not each.name.startswith(names.PREFIX.encode())
        ]
        return message.body, tuple(kept.items()), join_table(own)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class HostileRocketMQ(HostileBroker):
    """RocketMQ, whatever the driver of its consumers.

    Args:
        url: of the name server.
        make_adapter: for consumers.
        options: of the topic, besides its queues.
    """

    def __init__(self, url: str, make_adapter: Any, **options: Any) -> None:
        self.topic = f"odd-{uuid4().hex[:8]}"
        self.options = {"queues": 4, **options}
        self._make_adapter = make_adapter
        self._desk = Operations(parse_address(url, {}), "tests-hostile")
        self._turn = 0

    def adapter(self) -> Adapter:
        """Return an adapter of the driver."""
        made: Adapter = self._make_adapter()
        return made

    def odd(self, random: Random, number: int) -> Odd:
        """Return properties and packed bodies of every kind."""
        return rocket(random, number)

    def send(self, odd: Iterable[Odd]) -> Sequence[Odd]:
        """Store each by a request of its own; what the broker refuses was never let through."""
        topic = parse_topic(self.topic, {"queues": 4}, "").name
        places = self._desk.routes.ask(topic).readable
        taken = []
        for each in odd:
            self._turn += 1
            broker, queue = places[self._turn % len(places)]
            way: Rocket = each.way
            outgoing = Outgoing(topic, each.body, dict(way.properties), flag=way.flag)
            fields = send_fields("tests-hostile", outgoing, queue, way.system, to_text(way.properties))
            connection = self._desk.brokers.get(broker)
            try:
                connection.call(codes.SEND_MESSAGE, fields, each.body)
            except Exception:
                # Beyond the broker's limits, which are what is looked for.
                continue
            taken.append(each)
        return taken

    def same(self, message: Message) -> Any:
        """Return what must be the same; the tag of our own marks is left out of copies, lest they pass for marks.

        What is said of a body that cannot be unpacked is no header of the message.
        """
        hidden = dict(message.headers)
        if hidden.pop("rocketmq-trouble", None):
            del hidden[names.CONTENT_ENCODING]
        if hidden.get(TAGS_HEADER) == REMOVED:
            del hidden[TAGS_HEADER]
        return super().same(replace(message, headers=hidden))

    def close(self) -> None:
        """Disconnect."""
        self._desk.close(1.0)
