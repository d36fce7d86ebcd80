"""Options of the tiers before the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from oncemq.common.durations import format_duration
from oncemq.contracts.strategy import Scope
from oncemq.registry import did_you_mean
from oncemq_strategies.common.options import Options
from oncemq_strategies.redisson.bloom_shape import Shape
from oncemq_strategies.redisson.names import BadFilterName, check_filter_name

_SHARED = "shared"
_EXPECTED = 1_000_000
_FALSE_POSITIVES = 0.01
_MOST_EXPECTED = 1_000_000_000
_LEAST_MARGIN = timedelta(minutes=10)
_MARGIN = 0.1
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class BloomOptions:
    """The filter.

    Args:
        expected: identities that one generation is sized for.
        false_positives: the share of new identities reported as seen when it is full.
        shared: it is in Redis, for all processes and for services on Redisson.
        name: its name there; None = one of the consumer's own.
    """

    expected: int = _EXPECTED
    false_positives: float = _FALSE_POSITIVES
    shared: bool = False
    name: str | None = None

    @property
    def shape(self) -> Shape:
        """Parameters of a filter in Redis."""
        return Shape.made_for(self.expected, self.false_positives)

    def name_for(self, consumer: str) -> str:
        """Return the filter's name in Redis, if a consumer fills it."""
        return self.name or f"oncemq:bloom:{consumer}"


@dataclass(frozen=True, slots=True)
class TierOptions:
    """Both tiers.

    Args:
        redis: with marks in Redis.
        bloom: None = without a filter.
        ttl: minimum time that both remember.
    """

    redis: bool
    bloom: BloomOptions | None
    ttl: timedelta

    @property
    def in_redis(self) -> tuple[str, ...]:
        """Kinds of data kept in Redis."""
        shared = self.bloom is not None and self.bloom.shared
        return tuple(what for what, wanted in (("marks", self.redis), ("filter", shared)) if wanted)


def tier_options(given: Options, scope: Scope) -> TierOptions:
    """Read `redis`, `bloom` and `ttl`; by default a mark lives as long as retries can take, plus a margin."""
    redis, bloom = given.flag("redis", default=True), _bloom(given)
    if not redis and bloom is None:
        given.refuse("neither Redis nor a filter is left before the database", "write unique_key instead")
    ttl = given.duration("ttl")
    if ttl is None:
        ttl = usual_ttl(scope)
    if ttl < _SHORTEST:
        given.refuse(
            f"{format_duration(ttl)} is too short to remember anything",
            "leave it out, or write 7d",
            name="ttl",
        )
    return TierOptions(redis, bloom, ttl)


def usual_ttl(scope: Scope) -> timedelta:
    """Return how long an identity must be remembered: as long as retries can take, plus a margin."""
    return scope.retry_horizon + max(_LEAST_MARGIN, scope.retry_horizon * _MARGIN)


def _bloom(given: Options) -> BloomOptions | None:
    value = given.raw("bloom")
    if value is None or value is False:
        return None
    if value is True or value == _SHARED:
        return BloomOptions(shared=value == _SHARED)
    if not isinstance(value, Mapping):
        given.refuse(
            f"bloom is true, false, shared or a mapping, not {value!r}",
            "write {expected: 1000000, false_positives: 0.01}",
            name="bloom",
        )
    known = ("expected", "false_positives", "shared", "name")
    for name in value:
        if name not in known:
            given.refuse(f"unknown option {name!r}{did_you_mean(str(name), list(known))}", name="bloom")
    expected, share = value.get("expected", _EXPECTED), value.get("false_positives", _FALSE_POSITIVES)
    if isinstance(expected, bool) or not isinstance(expected, int) or not 0 < expected <= _MOST_EXPECTED:
        _refuse(given, f"expected is a whole number up to {_MOST_EXPECTED}, not {expected!r}")
    if isinstance(share, bool) or not isinstance(share, float | int) or not 0.0 < share < 1.0:
        _refuse(given, f"false_positives is a share between 0 and 1 such as 0.01, not {share!r}")
    shared = value.get("shared", False)
    if not isinstance(shared, bool):
        _refuse(given, f"shared is true or false, not {shared!r}")
    place = value.get("name")
    if place is not None and not isinstance(place, str):
        _refuse(given, f"name is a text, not {place!r}")
    bloom = BloomOptions(expected, float(share), shared, place)
    _check_place(given, bloom)
    return bloom


def _check_place(given: Options, bloom: BloomOptions) -> None:
    """Refuse a filter that cannot be in Redis, and a name for a filter that is not in Redis."""
    if not bloom.shared:
        if bloom.name is not None:
            _refuse(given, "a filter in memory has no name: write shared: true, or leave the name out")
        return
    try:
        Shape.made_for(bloom.expected, bloom.false_positives)
        if bloom.name is not None:
            check_filter_name(bloom.name, clustered=True)
    except (ValueError, BadFilterName) as refusal:
        _refuse(given, str(refusal))


def _refuse(given: Options, text: str) -> NoReturn:
    given.refuse(text, name="bloom")
