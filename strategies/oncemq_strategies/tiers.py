"""The tiers before the database: a Bloom filter, then marks in Redis; each may be left out."""

import threading
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from oncemq.facts import Problem, Severity
from oncemq.ledger import processed, schema
from oncemq.strategy import Scope
from oncemq_strategies.processed_records import Known
from oncemq_strategies.redis.marks import Marks
from oncemq_strategies.seen_filter import SeenFilter, local_filter
from oncemq_strategies.tier_counts import TierCounts
from oncemq_strategies.tier_options import TierOptions


class Tiers:
    """What one consumer asks before its database.

    Attributes:
        counts: how well they do.
    """

    def __init__(self, options: TierOptions, scope: Scope) -> None:
        self._options = options
        self._scope = scope
        self.counts = TierCounts()
        self._seen: SeenFilter | None = None
        if options.bloom is not None:
            bloom = options.bloom
            self._seen = local_filter(
                bloom.expected, bloom.false_positives, options.ttl, scope.clock.monotonic
            )
        self._marks: Marks | None = None
        self._mutex = threading.Lock()

    def check(self) -> Iterable[Problem]:
        """Yield what cannot work, or cannot help."""
        if self._options.redis and self._scope.redis is None:
            yield Problem(
                "tiered keeps its marks in Redis, but the app has none",
                'give the app redis: {url: "redis://localhost:6379/0"}, or write unique_key',
            )
        elif not self._options.redis:
            yield Problem(
                "a filter alone keeps no duplicate off the database: what it may have seen, the database decides",
                "leave `redis: false` out, or write unique_key",
                severity=Severity.WARNING,
            )
        elif self._options.bloom is not None:
            yield Problem(
                "the filter in memory sees only what this process has applied since its start: copies of what other "
                "processes applied go to the database, which decides",
                "leave `bloom` out where several processes share the consumer; Redis alone knows what all have applied",
                severity=Severity.WARNING,
            )

    def look_up(self, identities: Sequence[str]) -> Mapping[str, str]:
        """Return the fingerprint of every identity that is known to be applied; the others' insert decides."""
        if self._seen is not None:
            identities = self._seen.maybe(identities)
        marks = self._opened()
        if not identities or marks is None:
            return {}
        found = marks.look_up(identities)
        if found is None:
            return {}
        self.counts.add(asked=len(identities), marked=len(found))
        return found

    def remember(self, known: Known) -> None:
        """Take note of what the database has, now that it is committed."""
        self.counts.add(new=len(known.new), there=len(known.there))
        if self._seen is not None:
            new = list(known.new)
            self.counts.add(filtered_new=len(new), false_maybe=len(self._seen.maybe(new)))
            self._seen.add(new)
            self._seen.add(known.there)
        marks = self._opened()
        if marks is not None:
            marks.set({**known.there, **known.new})

    def figures(self) -> Mapping[str, float]:
        """Return shares, and the filter's size."""
        figures = dict(self.counts.figures())
        if self._seen is not None:
            figures["bloom_fill"] = self._seen.fill
            figures["bloom_generations"] = self._seen.generations
        if self._marks is not None:
            figures["redis_circuit_open"] = float(self._marks.failing)
        return figures

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:
        """Return which of the key's applied messages are marked."""
        marks = self._opened()
        rows = [row for row in processed.of_key(connection, key) if row["consumer"] == self._scope.consumer]
        identities = [str(row["identity"]) for row in rows]
        if marks is None or not identities:
            return {}
        found = marks.look_up(identities)
        if found is None:
            return {"marks": "not known: Redis does not answer"}
        return {f"mark {one}": _words(found.get(one)) for one in identities}

    def _opened(self) -> Marks | None:
        if self._marks is None and self._options.redis and self._scope.redis is not None:
            with self._mutex:
                if self._marks is None:
                    self._marks = Marks(self._scope.redis, self._marks_scope(), self._options.ttl)
        return self._marks

    def _marks_scope(self) -> str:
        """Marks speak of one ledger: where it is made anew, those of the old one say nothing."""
        engine = self._scope.engine
        return f"{self._scope.consumer}:{schema.birth(engine) if engine is not None else ''}"


def _words(print_: str | None) -> str:
    if print_ is None:
        return "none: the database decides"
    return f"applied, fingerprint {print_}" if print_ else "applied"
