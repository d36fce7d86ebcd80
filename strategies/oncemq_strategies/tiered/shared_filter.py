"""Bloom filter of the identities that one consumer has applied, filled for other services; renewed, never too early."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redisson.bloom_scripts import FILL
from oncemq_strategies.redisson.bloom_shape import Shape
from oncemq_strategies.redisson.names import below, check_filter_name, settings_of

_SAMPLE_BYTES = 8192
"""Bits are spread evenly: so many bytes tell how full the filter is, to about three percent of its false positives."""

_TOO_MANY = 1.1
"""More false positives than configured, beyond the sampling error."""

_log = logging.getLogger(__name__)


class SharedFilter:
    """Generations of a filter under two names, each an `RBloomFilter`: NAME, and `{NAME}:previous`.

    A generation as old as `keep` becomes the previous one, which lives as long again: together they contain all
    identities of the last `keep`. A filter at NAME made by other programs – its settings have no expiry – is filled as
    it is, and never renewed.

    Args:
        client: of the Redis that keeps it.
        name: Redisson's name of the filter.
        shape: parameters of a new generation.
        keep: minimum time that an identity is remembered.
    """

    def __init__(self, client: RedisClient, name: str, shape: Shape, keep: timedelta) -> None:
        self.name = check_filter_name(name, clustered=client.clustered)
        self.previous = below(name, "previous")
        self._made_new = shape
        self._shape = shape
        self._milliseconds = max(1, round(keep.total_seconds() * 1000))
        self._told = False
        self._refused = False
        self.fill = 0.0
        self.false_positives = 0.0

    def add(self, identities: Sequence[str]) -> Call:
        """Return the call that adds identities; its answer is for `understood`."""
        places = [place for identity in identities for place in self._shape.bits(identity)]
        keys = [
            *(self.name, settings_of(self.name)),
            *(self.previous, settings_of(self.previous)),
            below(self.name, "young"),
        ]
        return Call.of(
            FILL,
            keys,
            [
                *self._shape.fields()[:2],
                *(self._milliseconds, _SAMPLE_BYTES),
                *self._made_new.fields(),
                *places,
            ],
        )

    def understood(self, answer: Any) -> list[bool] | None:
        """Return for each identity whether it was new to the filter; None when it must be added again."""
        if not answer[0]:
            self._shape = Shape.read(answer[1:])
            return None
        self._measure(int(answer[1]))
        return [added == 1 for added in answer[2:]]

    def failed(self, error: Failure) -> None:
        """Log once that the filter is not filled, unless the error is transient."""
        if isinstance(error, RedisRefused) and not self._refused:
            self._refused = True
            _log.warning("Bloom filter %r is not filled: %s", self.name, error)

    def _measure(self, ones: int) -> None:
        share = ones / min(self._shape.size, _SAMPLE_BYTES * 8)
        self.fill = self._shape.added(share) / self._shape.expected if self._shape.expected else 0.0
        self.false_positives = share**self._shape.iterations
        too_many = self.false_positives > _TOO_MANY * self._shape.false_positives
        if too_many and not self._told:
            _log.warning(
                "Bloom filter %r is full: it reports %.2g of all new identities as seen, and was made for %.2g; "
                "make it for more than %s identities (bloom: {shared: true, expected: …}), from its next generation on",
                self.name,
                self.false_positives,
                self._shape.false_positives,
                f"{self._shape.expected:,}",
            )
        self._told = too_many
