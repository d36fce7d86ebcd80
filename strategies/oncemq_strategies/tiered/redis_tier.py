"""Redis tier: marks that are queried, and a filter that is filled for other programs; each may be disabled."""

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy.exc import SQLAlchemyError

from oncemq.contracts.strategy import Scope
from oncemq.errors import RedisRefused
from oncemq.ledger import schema
from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.common.processed_records import Known
from oncemq_strategies.common.redis_circuit import Circuit
from oncemq_strategies.common.redis_marks import Marks
from oncemq_strategies.common.redis_permissions import missing_for_keys, sample
from oncemq_strategies.tiered.options import TierOptions
from oncemq_strategies.tiered.restore_watch import RestoreWatch
from oncemq_strategies.tiered.shared_filter import SharedFilter

_LOOK_EVERY = 30.0
"""Seconds; a process that keeps running during a database restore may trust old marks for so long."""

_SHAPES = 3
"""Attempts when a filter turns out to have other parameters than cached."""


class RedisTier:
    """Data of one consumer in Redis.

    The filter is not queried: the marks answer for a unit's messages in one round trip, exactly, and with less work.

    Args:
        client: the app's Redis.
        options: selects marks and filter.
        scope: of the consumer.
    """

    def __init__(self, client: RedisClient, options: TierOptions, scope: Scope) -> None:
        self._client = client
        self._options = options
        self._scope = scope
        self._circuit = client.shared(Circuit)
        self._marks: Marks | None = None
        self._known_scope = ""
        self._watch = RestoreWatch(self._circuit, scope.consumer, options.ttl)
        self._look_at = 0.0
        self._filter: SharedFilter | None = None
        self._mutex = threading.Lock()

    @property
    def failing(self) -> bool:
        """Whether Redis has failed and is not asked for now."""
        return self._circuit.open

    def look_up(self, identities: Sequence[str]) -> Mapping[str, str] | None:
        """Return the fingerprint of each marked identity, in one round trip; None while unknown."""
        marks = self.marks()
        return marks.look_up(identities) if marks is not None else None

    def missing(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user, tried with a mark that no message has."""
        marks = self.marks()
        if marks is not None:
            name = marks.name(sample())
            yield from missing_for_keys(self._client, "mark", lambda: self._try_out(name))

    def _try_out(self, name: str) -> None:
        for words in (("SET", name, "", "PX", 1000), ("GET", name), ("MGET", name), ("DEL", name)):
            self._client.command(*words, key=name)

    def remember(self, known: Known) -> list[bool]:
        """Write marks and filter in one round trip; returns for each new identity whether it was new to the filter."""
        prints = {**known.there, **known.new}
        if not prints:
            return []
        identities = [*known.new, *known.there]

        def calls() -> list[Call]:
            marks, shared = self.marks(), self._opened_filter()
            marking = marks.set(prints) if marks is not None else []
            return [*marking, shared.add(identities)] if shared is not None else marking

        answers = self._circuit.ask(calls)
        shared = self._filter
        for _ in range(_SHAPES):
            if shared is None or not answers:
                break
            if isinstance(answers[-1], Failure):
                shared.failed(answers[-1])
                break
            were_new = shared.understood(answers[-1])
            if were_new is not None:
                return were_new[: len(known.new)]
            answers = self._circuit.ask(lambda: [shared.add(identities)])
        return []

    def forget(self, identities: Collection[str]) -> None:
        """Remove the marks of these messages.

        Raises:
            RedisUnavailable: not every answer arrived; some marks may be left.
        """
        marks = self.marks_to_look_at()
        if marks is not None and identities:
            for answer in self._client.together(marks.remove(identities)):
                if isinstance(answer, Failure):
                    raise answer

    def figures(self) -> Mapping[str, float]:
        """Return how full the filter is, and whether Redis answers."""
        figures = {"redis_circuit_open": float(self.failing)}
        if self._filter is not None:
            figures["bloom_fill"] = self._filter.fill
        return figures

    def marks(self) -> Marks | None:
        """Return the marks; None if disabled, or before they are known to belong to this ledger."""
        if not self._options.redis:
            return None
        now = time.monotonic()
        if self._marks is None or now >= self._look_at:
            with self._mutex:
                if self._marks is None or now >= self._look_at:
                    self._look_at = now + _LOOK_EVERY
                    scope = self._marks_scope()
                    if scope and scope != self._known_scope:
                        self._marks = Marks(self._client, scope, self._options.ttl)
                        self._known_scope = scope
        return self._marks

    def marks_to_look_at(self) -> Marks | None:
        """Return the marks for inspection; writes nothing."""
        engine = self._scope.engine
        if self._marks is not None or not self._options.redis or engine is None:
            return self._marks
        return Marks(self._client, f"{self._scope.consumer}:{schema.birth(engine)}", self._options.ttl)

    def _opened_filter(self) -> SharedFilter | None:
        bloom = self._options.bloom
        if self._filter is None and bloom is not None and bloom.shared:
            with self._mutex:
                if self._filter is None:
                    name = bloom.name_for(self._scope.consumer)
                    self._filter = SharedFilter(self._client, name, bloom.shape, self._options.ttl)
        return self._filter

    def _marks_scope(self) -> str:
        """Marks belong to one ledger: when it is recreated or restored, those of the old one are ignored."""
        engine = self._scope.engine
        try:
            born = self._watch.birth(engine) if engine is not None else ""
        except SQLAlchemyError:
            if self._marks is None:
                raise
            return self._known_scope
        return self._known_scope if born is None else f"{self._scope.consumer}:{born}"
