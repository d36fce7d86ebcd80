"""Uses of one Bloom filter in Redis by an app's consumers, and whether they are compatible."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.redis import RedisClient


@dataclass(frozen=True, slots=True)
class FilterUse:
    """Parameters with which one consumer uses a filter.

    Args:
        name: the filter's.
        ttl: minimum time that it remembers; then it is renewed.
        expected: identities that a generation is made for.
        false_positives: the share of new identities reported as seen when it is full.
    """

    name: str
    ttl: timedelta
    expected: int
    false_positives: float

    def differences(self, other: "FilterUse") -> Iterator[str]:
        """Yield the differences from the other use, in words of the configuration: mine, then its."""
        if self.ttl != other.ttl:
            yield f"ttl {format_duration(self.ttl)} and {format_duration(other.ttl)}"
        if self.expected != other.expected:
            yield f"expected {self.expected} and {other.expected}"
        if self.false_positives != other.false_positives:
            yield f"false_positives {self.false_positives:g} and {other.false_positives:g}"


class FilterUses:
    """All uses of filters in one Redis by one app; obtained by `client.shared(FilterUses)`.

    Args:
        _client: the app's Redis.
    """

    def __init__(self, _client: RedisClient) -> None:
        self._by_consumer: dict[str, FilterUse] = {}

    def note(self, consumer: str, use: FilterUse) -> None:
        """Note how a consumer uses its filter."""
        self._by_consumer[consumer] = use

    def check(self, consumer: str) -> Iterator[Problem]:
        """Yield why a consumer cannot share its filter with the others that fill it."""
        mine = self._by_consumer[consumer]
        for other, theirs in self._by_consumer.items():
            differences = list(mine.differences(theirs)) if theirs.name == mine.name else []
            if differences:
                yield Problem(
                    f"{consumer} and {other} fill one Bloom filter, {mine.name!r}, with {', '.join(differences)}: "
                    "whichever of them renews it decides for both",
                    "write the same ttl, expected and false_positives for both, or give each filter a name of its own",
                )
