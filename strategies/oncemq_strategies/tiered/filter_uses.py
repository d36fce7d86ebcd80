"""Uses of one Bloom filter in Redis by an app's consumers, and whether they mean the same one."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.redis import RedisClient


@dataclass(frozen=True, slots=True)
class FilterUse:
    """What one consumer makes of a filter.

    Args:
        name: the filter's.
        ttl: how long it remembers at least; then it is renewed.
        expected: identities that a generation is made for.
        false_positives: the share of new identities that it may take for seen, when it is full.
    """

    name: str
    ttl: timedelta
    expected: int
    false_positives: float

    def differences(self, other: "FilterUse") -> Iterator[str]:
        """Yield what the other one makes otherwise, in words of the configuration: mine, then its."""
        if self.ttl != other.ttl:
            yield f"ttl {format_duration(self.ttl)} and {format_duration(other.ttl)}"
        if self.expected != other.expected:
            yield f"expected {self.expected} and {other.expected}"
        if self.false_positives != other.false_positives:
            yield f"false_positives {self.false_positives:g} and {other.false_positives:g}"


class FilterUses:
    """All uses of filters in one Redis by one app; got by `client.shared(FilterUses)`.

    Args:
        _client: the app's Redis.
    """

    def __init__(self, _client: RedisClient) -> None:
        self._by_consumer: dict[str, FilterUse] = {}

    def note(self, consumer: str, use: FilterUse) -> None:
        """Note what a consumer makes of its filter."""
        self._by_consumer[consumer] = use

    def check(self, consumer: str) -> Iterator[Problem]:
        """Yield why a consumer's filter cannot be the one that others fill."""
        mine = self._by_consumer[consumer]
        for other, theirs in self._by_consumer.items():
            differences = list(mine.differences(theirs)) if theirs.name == mine.name else []
            if differences:
                yield Problem(
                    f"{consumer} and {other} fill one Bloom filter, {mine.name!r}, with {', '.join(differences)}: "
                    "whichever of them renews it decides for both",
                    "write the same ttl, expected and false_positives for both, or give each filter a name of its own",
                )
