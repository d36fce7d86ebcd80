"""Tiers before the database: a Bloom filter, then marks in Redis; each may be disabled."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.strategy import Scope
from oncemq.errors import RedisRefused
from oncemq.ledger.generations import records
from oncemq.ledger.records import processed
from oncemq_strategies.common.processed_records import Known
from oncemq_strategies.tiered.filter_uses import FilterUse, FilterUses
from oncemq_strategies.tiered.memory_filter import SeenFilter, local_filter
from oncemq_strategies.tiered.options import TierOptions
from oncemq_strategies.tiered.redis_tier import RedisTier


class TierCounts:
    """Counts of messages; thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        """Add to each count."""
        with self._mutex:
            for name, count in counts.items():
                self._counts[name] += count

    def figures(self) -> Mapping[str, float]:
        """Return shares between 0 and 1; a share of zero messages is omitted.

        - `false_positive_rate`: of the new identities, those that the filter reported as seen.
        - `redis_hit_rate`: of the identities looked up in Redis, those that were marked.
        - `database_conflict_rate`: of the inserted identities, those that existed.
        - `kept_off_database`: of the duplicates, those that never reached the database.
        """
        with self._mutex:
            counts = Counter(self._counts)
        shares = {
            "false_positive_rate": (counts["false_maybe"], counts["filtered_new"]),
            "redis_hit_rate": (counts["marked"], counts["asked"]),
            "database_conflict_rate": (counts["there"], counts["there"] + counts["new"]),
            "kept_off_database": (counts["kept_off"], counts["kept_off"] + counts["duplicates"]),
        }
        return {name: part / whole for name, (part, whole) in shares.items() if whole}


class Tiers:
    """Tiers that one consumer queries before its database.

    Attributes:
        counts: counts of their answers.
    """

    def __init__(self, options: TierOptions, scope: Scope) -> None:
        self._options = options
        self._scope = scope
        self.counts = TierCounts()
        bloom = options.bloom
        self._seen: SeenFilter | None = None
        if bloom is not None and not bloom.shared:
            self._seen = local_filter(
                bloom.expected, bloom.false_positives, options.ttl, scope.clock.monotonic
            )
        self._redis: RedisTier | None = None
        if options.in_redis and scope.redis is not None:
            self._redis = RedisTier(scope.redis, options, scope)
        self._uses: FilterUses | None = None
        if bloom is not None and bloom.shared and scope.redis is not None:
            name = bloom.name_for(scope.consumer)
            self._uses = scope.redis.shared(FilterUses)
            self._uses.note(
                scope.consumer, FilterUse(name, options.ttl, bloom.expected, bloom.false_positives)
            )

    def check(self) -> Iterable[Problem]:
        """Yield why the tiers cannot work, or cannot help."""
        if self._options.in_redis and self._redis is None:
            yield Problem(
                f"tiered keeps its {' and '.join(self._options.in_redis)} in Redis, but the app has none",
                'give the app redis: {url: "redis://localhost:6379/0"}, or write unique_key',
            )
        elif not self._options.redis:
            yield Problem(
                "a filter alone keeps no duplicate off the database: what it may have seen, the database decides",
                "leave `redis: false` out, or write unique_key",
                severity=Severity.WARNING,
            )
        elif self._seen is not None:
            yield Problem(
                "the filter in memory sees only what this process has applied since its start: copies of what other "
                "processes applied go to the database, which decides",
                "leave `bloom` out where several processes share the consumer; Redis alone knows what all have applied",
                severity=Severity.WARNING,
            )
        if self._uses is not None:
            yield from self._uses.check(self._scope.consumer)

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user."""
        if self._redis is not None:
            yield from self._redis.missing()

    def look_up(self, identities: Sequence[str]) -> Mapping[str, str]:
        """Return the fingerprint of every identity known to be applied; the insert decides about the others."""
        if self._seen is not None:
            identities = self._seen.maybe(identities)
        found = self._redis.look_up(identities) if self._redis is not None and identities else None
        if found is None:
            return {}
        self.counts.add(asked=len(identities), marked=len(found))
        return found

    def remember(self, known: Known) -> None:
        """Note the identities that the database has, now that they are committed."""
        self.counts.add(new=len(known.new), there=len(known.there))
        if self._seen is not None:
            new = list(known.new)
            self.counts.add(filtered_new=len(new), false_maybe=len(self._seen.maybe(new)))
            self._seen.add(new)
            self._seen.add(known.there)
        if self._redis is not None:
            were_new = self._redis.remember(known)
            self.counts.add(filtered_new=len(were_new), false_maybe=were_new.count(False))

    def forget(self, identities: Collection[str]) -> None:
        """Remove the marks of these messages; the filters may keep them, since they decide nothing alone."""
        if self._redis is not None:
            self._redis.forget(identities)

    def figures(self) -> Mapping[str, float]:
        """Return shares, and the filter's size."""
        figures = dict(self.counts.figures())
        if self._seen is not None:
            figures["bloom_fill"] = self._seen.fill
            figures["bloom_generations"] = self._seen.generations
        if self._redis is not None:
            figures |= self._redis.figures()
        return figures

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:
        """Return which of the key's applied messages are marked."""
        marks = self._redis.marks_to_look_at() if self._redis is not None else None
        consumer = self._scope.consumer
        rows = [row for row in processed.of_key(connection, key) if row["consumer"] == consumer]
        if self._scope.generations:
            rows += records.of_key(connection, consumer, key)
        identities = [str(row["identity"]) for row in rows]
        if marks is None or not identities:
            return {}
        found = marks.look_up(identities)
        if found is None:
            return {"marks": "not known: Redis does not answer"}
        return {f"mark {identity}": _words(found.get(identity)) for identity in identities}


def _words(print_: str | None) -> str:
    if print_ is None:
        return "none: the database decides"
    return f"applied, fingerprint {print_}" if print_ else "applied"
