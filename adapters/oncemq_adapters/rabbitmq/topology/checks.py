"""Checks a consumer on RabbitMQ for unsafe or impossible settings, with advice."""

from collections.abc import Iterator
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq_adapters.rabbitmq.topology.delays import LONGEST
from oncemq_adapters.rabbitmq.topology.names import PREFETCH_LIMIT, read_topic

CONSUMER_TIMEOUT = timedelta(minutes=30)
"""RabbitMQ's default; it closes the channel of a consumer that keeps a delivery for longer."""


def check_consumer(facts: ConsumerFacts, queue_type: str) -> Iterator[Problem]:
    """Yield every problem that can be seen without a connection."""
    yield from read_topic(facts.topic, facts.options, queue_type)[1]
    if facts.in_flight > PREFETCH_LIMIT:
        yield Problem(
            f"RabbitMQ can have {PREFETCH_LIMIT} deliveries in flight at most, not {facts.in_flight}",
            f"set it to {PREFETCH_LIMIT} or less",
            "in_flight",
        )
    if "stream" in facts.options and not facts.dialect:
        yield Problem(
            "stream: keeps in the app's database how far the group has read, and there is none",
            'add database: {url: "sqlite:///app.db"}',
            "topic.stream",
        )
    if facts.options.get("max_priority") is not None and facts.hold_key:
        yield Problem(
            "messages of a higher priority overtake earlier ones of their key, but this consumer depends on their order",
            "nothing, if all messages of a key have one priority; else leave max_priority: out",
            "topic.max_priority",
            Severity.WARNING,
        )
    yield from _timeouts(facts)


def _timeouts(facts: ConsumerFacts) -> Iterator[Problem]:
    if facts.hard_limit is not None and facts.hard_limit >= CONSUMER_TIMEOUT:
        yield Problem(
            f"handlers may run for {format_duration(facts.hard_limit)}, but RabbitMQ takes a delivery back after its "
            f"consumer_timeout ({format_duration(CONSUMER_TIMEOUT)} unless configured)",
            "lower the hard limit or raise consumer_timeout in rabbitmq.conf",
            "hard_limit",
            Severity.WARNING,
        )
    if facts.retry_horizon > LONGEST:
        yield Problem(
            f"retries can take {format_duration(facts.retry_horizon)}; one pause can be "
            f"{format_duration(LONGEST)} at most on RabbitMQ",
            "shorten the backoff's max",
            "retry",
            Severity.WARNING,
        )
