"""Checks a consumer on RocketMQ for unsafe or impossible settings, with advice."""

from collections.abc import Iterator
from datetime import timedelta
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Final

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import ConfigError
from oncemq_adapters.rocketmq.names import TAG, TopicOptions, group_of, read_topic
from oncemq_adapters.rocketmq.properties import TAGS_HEADER
from oncemq_adapters.route_selection import RouteSelection

KEPT = timedelta(hours=72)
"""RocketMQ's default; whatever is older is deleted, consumed or not."""


def missing_packages() -> list[str]:
    """Return the packages for packed bodies that are not installed."""
    return [name for name in ("lz4", "zstandard") if find_spec(name) is None]


def check_consumer(facts: ConsumerFacts, namespace: str) -> Iterator[Problem]:
    """Yield every problem that can be seen without a connection."""
    topic, problems = read_topic(facts.topic, facts.options, namespace)
    yield from problems
    try:
        group_of(Subscription(facts.name, facts.topic, facts.group), namespace)
    except ConfigError as error:
        yield Problem(str(error), where="group")
    if facts.retry_horizon > KEPT:
        yield Problem(
            f"retries can take {format_duration(facts.retry_horizon)}, but RocketMQ deletes messages after "
            f"{format_duration(KEPT)} unless fileReservedTime says more",
            "shorten the backoff or raise fileReservedTime in broker.conf",
            "retry",
            Severity.WARNING,
        )
    if lacking := missing_packages():
        yield Problem(
            f"{' and '.join(lacking)} not installed: bodies that Java's producers pack with LZ4 or ZSTD cannot be read",
            "pip install 'oncemq[rocketmq]'; nothing, if no producer packs so – such a message becomes a dead letter, whose "
            "replay is read after that",
            severity=Severity.WARNING,
        )
    yield from check_routes(facts, topic)
    if topic.fifo and facts.attempts > 1:
        yield Problem(
            "a fifo topic's retries are counted in memory: after a restart a message has its attempts again",
            "nothing, if that is acceptable; else leave out fifo and let a strategy keep the order of each key",
            "retry",
            Severity.WARNING,
        )


def _no_tag(value: str) -> tuple[str, str] | None:
    if TAG.fullmatch(value) and value != "*":
        return None
    return "cannot be a tag", "a tag has no spaces and no |"


ROUTES: Final = RouteSelection(
    "RocketMQ",
    "tag",
    f"headers.{TAGS_HEADER}",
    "tags",
    {
        name: f"the tags of the routes are subscribed to, but the topic has {name}, too"
        for name in ("tags", "filter")
    },
    _no_tag,
)
"""For all three drivers."""


def check_routes(facts: ConsumerFacts, topic: TopicOptions) -> Iterator[Problem]:
    """Warn of each route by tag whose tag the consumer does not subscribe to: brokers skip its messages.

    Not an error, since retries from before a change of the tags still arrive.
    """
    if not topic.tags or facts.routes_by.strip() != f"headers.{TAGS_HEADER}":
        return
    tags = sorted(topic.tags)
    for value in facts.routes:
        if value in topic.tags:
            continue
        close = get_close_matches(value, tags, n=1, cutoff=0.6)
        yield Problem(
            f"the route {value!r} never matches: the topic's tags are {', '.join(map(repr, tags))}",
            f"did you mean {close[0]!r}? Or add {value!r} to tags"
            if close
            else f"add {value!r} to tags, or leave the route out",
            "routes",
            Severity.WARNING,
        )
