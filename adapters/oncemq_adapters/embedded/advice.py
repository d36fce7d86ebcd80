"""What `check` says about a consumer on an embedded broker."""

from collections.abc import Iterator
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq_adapters.embedded.settings import Settings


def problems(settings: Settings, facts: ConsumerFacts) -> Iterator[Problem]:
    """Yield what cannot be safe, and what is declared in vain."""
    limit = facts.hard_limit or facts.soft_limit or facts.unit_time
    if settings.lease <= limit:
        yield Problem(
            f"a delivery is leased for {format_duration(settings.lease)}, but one unit of this consumer may last "
            f"{format_duration(limit)}: its messages would be delivered to others meanwhile",
            f"set the broker's lease above {format_duration(limit + timedelta(seconds=1))}",
            "broker.lease",
        )
    if settings.path is None:
        yield Problem(
            f"broker {facts.broker!r} is in memory: its messages end with this process, and other processes "
            "(run --processes, publish, dead-letters) do not see them",
            "name a file: embedded:///messages.db",
            "broker.url",
            Severity.WARNING,
        )
    for name in facts.options:
        yield Problem(
            f"the option {name!r} means nothing to an embedded broker; it is ignored",
            "",
            f"topic.{name}",
            Severity.WARNING,
        )
