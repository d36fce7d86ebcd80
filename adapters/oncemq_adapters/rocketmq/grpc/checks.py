"""Checks a consumer behind a proxy for unsafe or impossible settings, with advice."""

from collections.abc import Iterator
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.adapter import Subscription
from oncemq.contracts.checks import ConsumerFacts
from oncemq.errors import ConfigError
from oncemq_adapters.rocketmq.checks import KEPT, check_routes
from oncemq_adapters.rocketmq.grpc.settings import Settings
from oncemq_adapters.rocketmq.grpc.topics import read_proxied
from oncemq_adapters.rocketmq.names import group_of
from oncemq_adapters.rocketmq_client.names import FIRST
from oncemq_adapters.rocketmq_client.producer import LONGEST_DELAY

NATIVE_ATTEMPTS = 16
"""Tries after which a proxy makes a dead letter by itself, unless the group says otherwise."""

_EXTENDED_IN_TIME = timedelta(seconds=20)
"""The engine extends leases with less than 15 seconds left."""


LONGEST_PAUSE = timedelta(hours=24)
"""A proxy's default (`maxDelayTimeMills`)."""


def check_consumer(facts: ConsumerFacts, settings: Settings) -> Iterator[Problem]:
    """Yield every problem that can be seen without a connection."""
    topic, problems = read_proxied(facts.topic, facts.options, settings.namespace)
    yield from problems
    try:
        group_of(Subscription(facts.name, facts.topic, facts.group), settings.namespace)
    except ConfigError as error:
        yield Problem(str(error), where="group")
    if facts.retry_horizon > KEPT:
        yield Problem(
            f"retries can take {format_duration(facts.retry_horizon)}, but RocketMQ holds a message back for "
            f"{format_duration(LONGEST_DELAY)} at most and deletes it after {format_duration(KEPT)}",
            "shorten the backoff",
            "retry",
            Severity.WARNING,
        )
    if facts.longest_pause > LONGEST_PAUSE:
        yield Problem(
            f"a retry can pause for {format_duration(facts.longest_pause)}, but a proxy holds a message back for "
            f"{format_duration(LONGEST_PAUSE)} at most unless maxDelayTimeMills says more: such retries become dead letters",
            "write a shorter retry.backoff.max, or raise maxDelayTimeMills in rmq-proxy.json",
            "retry.backoff.max",
            Severity.WARNING,
        )
    if settings.lease < _EXTENDED_IN_TIME:
        yield Problem(
            f"a delivery is leased for {format_duration(settings.lease)}, which is too short to be extended in time",
            f"set the broker's lease to {format_duration(_EXTENDED_IN_TIME)} or more",
            "broker.lease",
        )
    yield from check_routes(facts, topic.options)
    if topic.fifo and facts.attempts > NATIVE_ATTEMPTS:
        yield Problem(
            f"RocketMQ counts the tries of a fifo group itself and gives up after {NATIVE_ATTEMPTS}, without the cause",
            f"set attempts to {NATIVE_ATTEMPTS} or less, or raise the group's retryMaxTimes",
            "retry.attempts",
            Severity.WARNING,
        )
    if settings.administration is None:
        yield from _without_name_servers(topic.options.start != FIRST)


def _without_name_servers(chosen: bool) -> Iterator[Problem]:
    yield Problem(
        "without name servers topics cannot be made, list dead letters or see whether the group has other members, "
        "and a new group begins where the proxy decides, often at the end of the topic",
        "write name_servers: [host:9876] at the broker",
        "broker.name_servers",
        Severity.ERROR if chosen else Severity.WARNING,
    )
