"""Tells in a line for each route what differs for its messages from the consumer's others."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oncemq.asyncapi.values import named
from oncemq.common.durations import format_duration
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.strategy_list import StrategyChoice
from oncemq.retry.backoff import RetryPolicy


def route_lines(settled: ConsumerSettings) -> Iterator[str]:
    """Yield a line for each route that has more than a handler of its own.

    Args:
        settled: the consumer's settings.
    """
    for value, different in settled.differing.items():
        rules = [rule for rule in settled.by_route[value].retry_rules if rule not in settled.retry_rules]
        errors = [f"{named(rule.error)} {tries(rule.policy)}" for rule in rules]
        yield f"route {value}: {', '.join(_parts(different, errors))}"


def tries(policy: RetryPolicy) -> str:
    """Return how often a message is tried, and for how long."""
    if policy.attempts == 1:
        return "1 attempt"
    return f"{policy.attempts} attempts within {format_duration(policy.horizon())}"


def _strategy(choice: StrategyChoice) -> str:
    """Return its name, with the names of its options: by them alone it may differ."""
    return f"{choice.name} ({', '.join(choice.options)})" if choice.options else choice.name


def _parts(different: Mapping[str, Any], errors: Iterable[str]) -> Iterator[str]:
    if "strategies" in different:
        yield " + ".join(map(_strategy, different["strategies"]))
    if "retry" in different:
        yield tries(different["retry"])
        yield from errors
    for name in ("key", "version"):
        if name in different:
            yield f"{name} {different[name]}"
    if "identity" in different:
        yield f"identity {', '.join(different['identity'])}"
    if "schema" in different:
        yield f"schema {named(different['schema'])}"
