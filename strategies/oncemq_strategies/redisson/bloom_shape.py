"""Size of a Bloom filter and the bits of a value in it, computed as Redisson does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from oncemq_strategies.redisson.highway_hash import hash128

MOST_BITS = 2**32 - 2
"""Redisson's limit; a string in Redis has two bits more."""

_SIGNED_MAX = 2**63 - 1
_UNSIGNED_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Parameters that a filter was created with, and the derived numbers.

    Args:
        expected: number of values that it was made for.
        false_positives: the share of other values then reported as added, between 0 and 1.
        size: its bits.
        iterations: bits of each value.
    """

    expected: int
    false_positives: float
    size: int
    iterations: int

    @classmethod
    def made_for(cls, expected: int, false_positives: float) -> Self:
        """Return the shape that Redisson gives a new filter.

        Raises:
            ValueError: no such filter is possible.
        """
        if expected < 1 or not 0.0 < false_positives < 1.0:
            raise ValueError("a filter is made for at least one value, and for a share between 0 and 1")
        size = int(-expected * math.log(false_positives) / (math.log(2) * math.log(2)))
        if not 0 < size <= MOST_BITS:
            raise ValueError(f"a filter in Redis has 1 to {MOST_BITS:,} bits, and this would need {size:,}")
        iterations = max(1, math.floor(size / expected * math.log(2) + 0.5))
        return cls(expected, false_positives, size, iterations)

    @classmethod
    def read(cls, fields: Sequence[Any]) -> Self:
        """Return the shape from a filter's settings, in the order of `fields`."""
        size, iterations, expected, share = (
            field.decode() if isinstance(field, bytes) else str(field) for field in fields
        )
        return cls(int(expected or 0), float(share or 1.0), int(size), int(iterations))

    def fields(self) -> tuple[str, str, str, str]:
        """Return the settings: size, hashIterations, expectedInsertions, falseProbability."""
        return (
            str(self.size),
            str(self.iterations),
            str(self.expected),
            _java_text(self.false_positives),
        )

    def bits(self, value: str | bytes) -> list[int]:
        """Return the positions of a value's bits; text counts as UTF-8, as with Redisson's StringCodec."""
        first, second = hash128(value.encode() if isinstance(value, str) else value)
        places, state = [], first
        for turn in range(self.iterations):
            places.append((state & _SIGNED_MAX) % self.size)
            state = (state + (first if turn % 2 else second)) & _UNSIGNED_MAX
        return places

    def added(self, ones: float) -> float:
        """Return the approximate number of added values when this share of the bits is set."""
        if ones >= 1.0:
            return math.inf
        return -self.size / self.iterations * math.log(1.0 - ones)


def _java_text(number: float) -> str:
    """Return `number`, between 0 and 1, as Java writes a double: 0.01, but 1.0E-4."""
    if number >= 0.001:
        return repr(number)
    _sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{text[0]}.{text[1:] or '0'}E{int(exponent) + len(digits) - 1}"
