"""Options of topics and groups of RocketMQ, understood: real names, what is subscribed to, where a group begins."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.broker_queries import PrivateNames, group_on_topic
from oncemq.errors import ConfigError
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rocketmq_client.names import (
    ALLOCATIONS,
    AVERAGELY,
    LONGEST_GROUP,
    LONGEST_TOPIC,
    RETRY_PREFIX,
    Selection,
    in_namespace,
)
from oncemq_adapters.start import read_start

INSTEAD = {
    "declare": "RocketMQ has topics and groups alone: write create: true at the topic to have missing ones made, create: false to "
    "have them refused; existing ones are used as they are",
    "max_priority": "RocketMQ has no priorities: give urgent messages a topic and a consumer of their own",
}
"""What to write instead of another broker's options."""
KNOWN = ("topic_name", "tags", "start", "fifo", "create", "queues", "allocation", "filter")
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
TAG = re.compile(r"[^|\s\x01\x02]+")


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """A topic's broker options, understood.

    Args:
        topic: the topic's name in the app.
        name: its name on the broker, namespace included.
        tags: only messages with one of these tags; empty = all.
        start: where a new group begins: `first`, `last` or a moment.
        fifo: queues are locked for their one member, which takes one message of a queue after the other.
        create: make the topic if it is missing; None = where the brokers themselves make topics on demand.
        queues: how many queues a topic gets that is made here.
        allocation: the rule by which all members of the group divide the queues, one of `ALLOCATIONS`.
        filter: only messages whose properties this SQL92 expression selects; empty = all.
    """

    topic: str
    name: str
    tags: frozenset[str]
    start: str | datetime
    fifo: bool
    create: bool | None
    queues: int
    allocation: str = AVERAGELY
    filter: str = ""

    @property
    def selection(self) -> Selection:
        """What is subscribed to."""
        if self.filter:
            return Selection(self.filter, "SQL92")
        return Selection(" || ".join(sorted(self.tags)) or "*")


def parse_topic(topic: str, options: Mapping[str, Any], namespace: str) -> TopicOptions:
    """Return the topic's options.

    Raises:
        ConfigError: they cannot work.
    """
    parsed, problems = read_topic(topic, options, namespace)
    if problems:
        raise ConfigError(problems)
    return parsed


def read_topic(topic: str, options: Mapping[str, Any], namespace: str) -> tuple[TopicOptions, list[Problem]]:
    """Return the topic's options as far as they can be understood, and their errors."""
    reader = OptionReader(options, KNOWN, "RocketMQ topic option", INSTEAD)
    name = reader.text("topic_name", topic) or topic
    tags = frozenset(reader.texts("tags"))
    if isinstance(declared := options.get("tags"), str):
        # As in Java's subscribe(): TagA || TagB.
        tags = frozenset(part.strip() for part in declared.split("||"))
    create = options.get("create")
    parsed = TopicOptions(
        topic=topic,
        name=in_namespace(namespace, name),
        tags=tags - {"*"},
        start=read_start(reader),
        fifo=reader.flag("fifo", default=False),
        create=None if create is None else reader.flag("create", default=False),
        queues=reader.number("queues", 8, 1, 1024) or 8,
        allocation=_allocation(reader),
        filter=(reader.text("filter", "") or "").strip(),
    )
    if not _NAME.fullmatch(name):
        reader.complain(
            "topic_name",
            f"RocketMQ has no topic called {name!r}: letters, digits, _ and - only",
            f"write topic_name: {re.sub(r'[^a-zA-Z0-9_-]', '-', name) or 'its-name'} at the topic",
        )
    elif len(parsed.name) > LONGEST_TOPIC:
        reader.complain("topic_name", f"{parsed.name!r} is longer than RocketMQ's {LONGEST_TOPIC} characters")
    for tag in sorted(tags):
        if not TAG.fullmatch(tag):
            reader.complain(
                "tags", f"{tag!r} cannot be a tag", "write a list of tags, or one text: TagA || TagB"
            )
    if parsed.filter and parsed.tags:
        reader.complain(
            "filter", "a topic is filtered by tags or by an expression, not by both", "leave out one"
        )
    return parsed, reader.problems


def group_of(subscription: Subscription, namespace: str) -> str:
    """Return a subscription's group by its real name.

    Raises:
        ConfigError: RocketMQ has no such group.
    """
    if not _NAME.fullmatch(subscription.group):
        text = f"RocketMQ has no group called {subscription.group!r}: letters, digits, _ and - only"
        raise ConfigError([f"{text} – write another group: at consumer {subscription.consumer!r}"])
    group = in_namespace(namespace, subscription.group)
    if len(group) > LONGEST_GROUP - len(RETRY_PREFIX):
        raise ConfigError([f"the group {group!r} is too long for RocketMQ – shorten it"])
    return group


def private_names(peers: Iterable[str], group: str, topic: TopicOptions) -> PrivateNames:
    """Return what members of a group share, at these name servers or endpoints; other tags are another share."""
    place = ",".join(sorted({peer.replace("localhost:", "127.0.0.1:") for peer in peers}))
    chosen = topic.selection
    tags = "" if chosen == Selection() else f" ({'filter' if topic.filter else 'tags'} {chosen.text})"
    return PrivateNames(place, {group_on_topic(group, topic.name) + tags: "messages"})


def _allocation(reader: OptionReader) -> str:
    named = reader.text("allocation", AVERAGELY) or AVERAGELY
    rule = named.removeprefix("AllocateMessageQueue")
    if rule in ALLOCATIONS:
        return rule
    reader.complain(
        "allocation",
        f"{named!r} is an unknown rule of allocation",
        f"write {', '.join(ALLOCATIONS[:-1])} or {ALLOCATIONS[-1]}; all members of the group need the same rule, Java clients too",
    )
    return AVERAGELY
