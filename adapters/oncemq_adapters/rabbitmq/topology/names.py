"""Names on RabbitMQ: a topic's exchange or existing queue, and the names private to a group."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from zlib import crc32

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rabbitmq.connection.address import DECLARE, QUEUE_TYPES, read_declare
from oncemq_adapters.rabbitmq.topology.delays import all_steps
from oncemq_adapters.start import FIRST, read_start

DEFAULT_EXCHANGE = "oncemq"
DEFAULT_KIND = "topic"
KNOWN = (
    "queue",
    "exchange",
    "exchange_type",
    "routing_key",
    "routing_keys",
    "queue_type",
    "prefetch",
    "declare",
    "partitions",
    "max_priority",
    "stream",
    "start",
)
KINDS = ("topic", "direct", "fanout", "headers", "x-consistent-hash", "x-delayed-message")
LONGEST_NAME = 255
"""Bytes; a short string of AMQP 0-9-1."""

HIGHEST_PRIORITY = 255
PREFETCH_LIMIT = 65535
MOST_PARTITIONS = 256
MARKER_SUFFIX = ".partitions"
_RETRY = re.compile(r"\.retry\.\d+$")


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """A topic's broker options, understood.

    Args:
        topic: the topic's name in the app.
        queue: an existing queue; None = the group's own is declared and bound.
        exchange: where messages of the topic are published; empty = straight to `queue`.
        exchange_type: as declared; None = take what exists, else make a topic exchange.
        routing_key: of the binding and of published messages.
        routing_keys: of the bindings, instead of `routing_key`; messages have theirs as a header. Empty = none of their own.
        max_priority: the highest priority of its messages, for queues that are declared with it; None = they have none.
        queue_type: quorum or classic, for the queues that the adapter declares.
        prefetch: overrides how many deliveries may be unsettled at once.
        declare: whether exchange, queue and binding are made (`true`), only where they are missing (`missing`), or
            looked at (`false`).
        partitions: over how many queues the messages are spread by their keys; None = one queue.
        stream: an existing stream that is read beside the group's own queue, to which retries come back.
        start: where a new group begins with the stream: `first`, `last` or a moment.
    """

    topic: str
    queue: str | None
    exchange: str
    exchange_type: str | None
    routing_key: str
    queue_type: str
    prefetch: int | None
    declare: str = DECLARE
    partitions: int | None = None
    stream: str | None = None
    start: str | datetime = FIRST
    routing_keys: tuple[str, ...] = ()
    max_priority: int | None = None

    @property
    def bound_keys(self) -> tuple[str, ...]:
        """With which the group's queue is bound; a partition's is another one."""
        return self.routing_keys or (self.routing_key,)

    def key_of(self, key: str) -> str:
        """Return the routing key of messages of a business key."""
        return self.routing_key if self.partitions is None else self.partition_key(self.partition_of(key))

    def partition_of(self, key: str) -> int:
        """Return the partition of a business key: CRC-32 of its UTF-8 bytes modulo their number."""
        return crc32(key.encode()) % (self.partitions or 1)

    def partition_key(self, number: int) -> str:
        """Return the routing key of a partition; it names their number, so that a change of it is noticed."""
        return f"{self.routing_key}.{self.partitions}-{number}"


@dataclass(frozen=True, slots=True)
class Place:
    """The queues of one group on one topic.

    Args:
        topic: the topic's options.
        queue: where the group consumes; the common start of its partitions' names, if it has any.
        private: start of the names that only this group uses.
        partition: which partition this is; None for the whole.
    """

    topic: TopicOptions
    queue: str
    private: str
    partition: int | None = None

    @property
    def is_partitioned(self) -> bool:
        """Whether the group consumes from the queues of `parts()` instead of `queue`."""
        return self.topic.partitions is not None and self.partition is None

    @property
    def marker(self) -> str:
        """The queue, always empty, whose length limit tells the number of the group's partitions."""
        return f"{self.private}{MARKER_SUFFIX}"

    @property
    def members(self) -> str:
        """The exchange by which the members of a partitioned group hear of each other."""
        return f"{self.private}.members"

    def parts(self, count: int | None = None) -> "list[Place]":
        """Return the partitions; itself where there are none.

        Args:
            count: another number of partitions than the topic has now.
        """
        count = self.topic.partitions if count is None else count
        if count is None or self.partition is not None:
            return [self]
        topic = replace(self.topic, partitions=count)
        return [Place(topic, f"{self.queue}.{count}-{at}", self.private, at) for at in range(count)]

    def queue_of(self, key: str | None) -> str:
        """Return the queue of a business key."""
        return self.parts()[self.topic.partition_of(key or "")].queue if self.is_partitioned else self.queue

    def queues(self) -> list[str]:
        """Return the names of the queues where the group consumes."""
        return [part.queue for part in self.parts()]

    @property
    def is_existing(self) -> bool:
        """Whether the queue is foreign and never declared."""
        return self.topic.queue is not None

    @property
    def dead_queue(self) -> str:
        """Where the group's dead letters lie."""
        return f"{self.private}.dead"

    def retry_queue(self, milliseconds: int) -> str:
        """Return the queue that holds messages back for exactly so long."""
        start = self.private if self.partition is None else self.queue
        return f"{start}.retry.{milliseconds}"


def parse_topic(topic: str, options: Mapping[str, Any], queue_type: str) -> TopicOptions:
    """Return the topic's options.

    Raises:
        ConfigError: they cannot work.
    """
    parsed, problems = read_topic(topic, options, queue_type)
    if problems:
        raise ConfigError(problems)
    return parsed


def read_topic(topic: str, options: Mapping[str, Any], queue_type: str) -> tuple[TopicOptions, list[Problem]]:
    """Return the topic's options as far as they can be understood, and their errors."""
    reader = OptionReader(options, KNOWN, "RabbitMQ topic option")
    queue = reader.text("queue")
    stream = reader.text("stream")
    exchange = reader.text("exchange", "" if queue or stream else DEFAULT_EXCHANGE) or ""
    routing_key = reader.text("routing_key", topic if exchange else queue or stream) or ""
    parsed = TopicOptions(
        topic=topic,
        queue=queue,
        exchange=exchange,
        exchange_type=reader.choice("exchange_type", "", KINDS) or None,
        routing_key=routing_key,
        queue_type=reader.choice("queue_type", queue_type, QUEUE_TYPES),
        prefetch=reader.number("prefetch", None, 1, PREFETCH_LIMIT),
        declare=read_declare(reader, DECLARE),
        partitions=reader.number("partitions", None, 1, MOST_PARTITIONS),
        stream=stream,
        start=read_start(reader),
        routing_keys=tuple(dict.fromkeys(reader.texts("routing_keys"))),
        max_priority=reader.number("max_priority", None, 1, HIGHEST_PRIORITY),
    )
    _refuse_contradictions(reader, options, parsed)
    _refuse_beside_stream(reader, options, parsed)
    if parsed.routing_keys:
        _refuse_unbindable(reader, parsed)
    if parsed.max_priority is not None:
        _refuse_unsorted(reader, parsed)
    if parsed.partitions is not None:
        _refuse_unpartitionable(reader, parsed)
    return parsed, reader.problems


def _refuse_contradictions(reader: OptionReader, options: Mapping[str, Any], parsed: TopicOptions) -> None:
    if (parsed.queue or parsed.stream) and not parsed.exchange:
        for name in ("routing_key", "exchange_type"):
            if name in options:
                reader.complain(
                    name, f"{name!r} needs an exchange, but only a queue is named", "add exchange:"
                )
    for name, text in (
        ("queue", parsed.queue),
        ("stream", parsed.stream),
        ("exchange", parsed.exchange),
        ("routing_key", parsed.routing_key),
        *(("routing_keys", key) for key in parsed.routing_keys),
    ):
        if text and len(text.encode()) > LONGEST_NAME:
            reader.complain(name, f"{name!r} is longer than {LONGEST_NAME} bytes")


def _refuse_beside_stream(reader: OptionReader, options: Mapping[str, Any], parsed: TopicOptions) -> None:
    if parsed.stream is None:
        if "start" in options:
            reader.complain(
                "start", "only a stream is read from a place of choice", "add stream:, or leave start: out"
            )
        return
    for name, why in (("queue", "is another source"), ("partitions", "are queues")):
        if name in options:
            reader.complain(
                name,
                f"a topic with stream: reads that stream, and {name} {why}",
                f"leave {name}: or stream: out",
            )


def _refuse_unbindable(reader: OptionReader, parsed: TopicOptions) -> None:
    for name, why in (
        ("queue", "an existing queue is bound by others"),
        ("stream", "a stream is bound by others"),
        ("partitions", "each partition is bound by its number"),
    ):
        if getattr(parsed, name) is not None:
            reader.complain(
                "routing_keys", f"with {name}: there is nothing to bind: {why}", f"leave {name}: out"
            )
    if parsed.exchange_type not in {None, "topic", "direct"}:
        reader.complain(
            "routing_keys",
            f"an exchange of type {parsed.exchange_type} does not follow routing keys alone",
            "use an exchange of type topic or direct",
        )


def _refuse_unsorted(reader: OptionReader, parsed: TopicOptions) -> None:
    """Refuse priorities where no classic queue keeps them: a queue in `queue:` is what its owner has declared."""
    if parsed.stream is not None:
        reader.complain(
            "max_priority", "a stream is read in the order in which it was written", "leave max_priority: out"
        )
    elif parsed.partitions is not None:
        reader.complain(
            "max_priority",
            "partitions keep the order of each key, which priorities would break",
            "leave out max_priority: or partitions:",
        )
    elif parsed.queue is None and parsed.queue_type != "classic":
        reader.complain(
            "max_priority",
            "a quorum queue has no priorities in RabbitMQ 3, and two levels in RabbitMQ 4, which nothing declares",
            "write queue_type: classic at the topic, or leave max_priority: out",
        )


def _refuse_unpartitionable(reader: OptionReader, parsed: TopicOptions) -> None:
    if parsed.queue:
        reader.complain(
            "partitions",
            "partitions are queues of the group's own, but an existing queue is named",
            "replace queue: by exchange: and routing_key:, or leave partitions: out",
        )
    if parsed.exchange_type not in {None, "topic", "direct"}:
        reader.complain(
            "partitions",
            f"partitions are chosen by the routing key, which an exchange of type {parsed.exchange_type} does not follow",
            "use an exchange of type topic or direct",
        )
    if {"*", "#"} & set(parsed.routing_key.split(".")):
        reader.complain(
            "partitions",
            f"partitions need a routing key without wildcards, not {parsed.routing_key!r}",
            "name the routing key that messages are published with",
        )


def place_of(subscription: Subscription, queue_type: str) -> Place:
    """Return the queues of a subscription.

    Raises:
        ConfigError: options cannot work, or names become too long for RabbitMQ.
    """
    topic = parse_topic(subscription.topic, subscription.options, queue_type)
    if topic.queue is not None:
        place = Place(topic, topic.queue, f"oncemq.{subscription.group}.{topic.queue}")
    else:
        own = f"{subscription.group}.{subscription.topic}"
        place = Place(topic, own, own)
    if len(place.parts()[-1].retry_queue(10**10).encode()) > LONGEST_NAME:
        raise ConfigError(
            [f"the queue name {place.queue!r} is too long for RabbitMQ – shorten group or topic"]
        )
    return place


def removable_queues(names: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return the queues behind names of `private_queues`, by name; a queue that others declared is none of them."""
    given = set(names)
    found: dict[str, Sequence[str]] = {}
    for name in given:
        queue = name.removeprefix("queue ")
        if name.endswith(".retry.*"):
            found[name] = [f"{queue.removesuffix('*')}{step}" for step in all_steps()]
        elif name.endswith((".dead", MARKER_SUFFIX)) or f"{name}.dead" in given:
            found[name] = [queue]
    return found


def private_queues(place: Place) -> dict[str, str]:
    """Return the queues that belong to one group alone, with the kind of their messages; those of retries as one."""
    if place.is_partitioned:
        return {
            f"queue {place.marker}": "partitions",
            f"queue {place.dead_queue}": "dead letters",
            f"queue {place.queue}": "messages",
        }
    return {
        f"queue {_RETRY.sub('.retry.*', name)}": role
        for name, role in (
            (f"{place.private}.retry.1", "retries"),
            (place.dead_queue, "dead letters"),
            (place.queue, "messages"),
        )
    }
