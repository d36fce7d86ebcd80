"""Names on Kafka: a topic's real name, its options, and the topics that belong to a group."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.broker_queries import PrivateNames, group_on_topic
from oncemq.errors import ConfigError
from oncemq_adapters.kafka.address import INSTEAD, Address
from oncemq_adapters.options import OptionReader
from oncemq_adapters.start import read_start

KNOWN = ("topic_name", "start", "create", "partitions")
LONGEST = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """A topic's broker options, understood.

    Args:
        topic: the topic's name in the app.
        name: its name on the broker.
        start: where a new group begins: `first`, `last` or a moment.
        create: make the topic if it is missing.
        partitions: how many a topic gets that is made here; None = the broker's default.
    """

    topic: str
    name: str
    start: str | datetime
    create: bool
    partitions: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A subscription's topics.

    Args:
        topic: what is consumed.
        group: the consumer group.
        retries: its retries; each partition is for delays of about one length.
        retry_group: which reads the retries: members would else be balanced over both topics together, and some be
            left with retries alone.
        dead: its dead letters.
    """

    topic: TopicOptions
    group: str
    retries: str
    retry_group: str
    dead: str


def parse_topic(topic: str, options: Mapping[str, Any], namespace: str = "") -> TopicOptions:
    """Return the topic's options.

    Raises:
        ConfigError: they cannot work.
    """
    parsed, problems = read_topic(topic, options, namespace)
    if problems:
        raise ConfigError(problems)
    return parsed


def read_topic(
    topic: str, options: Mapping[str, Any], namespace: str = ""
) -> tuple[TopicOptions, list[Problem]]:
    """Return the topic's options as far as they can be understood, and their errors."""
    reader = OptionReader(options, KNOWN, "Kafka topic option", INSTEAD)
    name = namespace + (reader.text("topic_name", topic) or topic)
    parsed = TopicOptions(
        topic=topic,
        name=name,
        start=read_start(reader),
        create=reader.flag("create", default=True),
        partitions=reader.number("partitions", None, 1, 10_000),
    )
    if not _NAME.fullmatch(name) or name in (".", ".."):
        reader.complain(
            "topic_name",
            f"Kafka has no topic called {name!r}: letters, digits, '.', '_' and '-' only",
            f"write topic_name: {re.sub(r'[^a-zA-Z0-9._-]', '-', name) or 'its-name'} at the topic",
        )
    elif len(name) > LONGEST:
        reader.complain("topic_name", f"{name!r} is longer than Kafka's {LONGEST} characters")
    return parsed, reader.problems


def place_of(subscription: Subscription, namespace: str = "") -> Place:
    """Return the topics of a subscription.

    Raises:
        ConfigError: there are no such names on Kafka.
    """
    topic = parse_topic(subscription.topic, subscription.options, namespace)
    group = namespace + subscription.group
    if not _NAME.fullmatch(group):
        text = f"the group {group!r} is a part of the names of its topics: letters, digits, '.', '_' and '-' only"
        raise ConfigError([f"{text} – write another group: at consumer {subscription.consumer!r}"])
    own = f"oncemq.{group}.{topic.name}"
    place = Place(topic, group, f"{own}.retries", f"{own}.retries", f"{own}.dead-letters")
    if len(place.dead) > LONGEST:
        raise ConfigError(
            [
                f"the topic {place.dead!r} has more than Kafka's {LONGEST} characters – shorten the group's name"
            ]
        )
    return place


def private_names(address: Address, place: Place) -> PrivateNames:
    """Return what members of a group share."""
    return PrivateNames(address.place, {group_on_topic(place.group, place.topic.name): "messages"})
