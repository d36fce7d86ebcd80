"""Bloom filter in memory that keeps every identity for its time: it may say "maybe" too often, never too seldom."""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Protocol

from oncemq.errors import MissingExtra

_MOST_GENERATIONS = 8


class Bits(Protocol):
    """One Bloom filter, as `rbloom.Bloom` is."""

    def __contains__(self, identity: str, /) -> bool:
        """Return whether it may have been added."""
        ...

    def update(self, identities: Collection[str], /) -> None:
        """Add all identities."""
        ...


@dataclass(slots=True)
class _Generation:
    """One filter of its full size.

    Args:
        bits: the filter.
        added: number of added identities.
        last: monotonic seconds of the last addition.
    """

    bits: Bits
    last: float
    added: int = 0


class SeenFilter:
    """Generations of Bloom filters: a full one is followed by a new one, and dropped when its last entry is old enough.

    If they fill faster than they age, the newest of eight takes all further entries: it answers "maybe" more often,
    which costs queries, and forgets nothing.

    Args:
        make: creates an empty filter of the full size.
        expected: entries that a filter is sized for.
        keep: how long an entry must be remembered.
        clock: monotonic seconds.
    """

    def __init__(
        self, make: Callable[[], Bits], expected: int, keep: timedelta, clock: Callable[[], float]
    ) -> None:
        self._make = make
        self._expected = expected
        self._keep = keep.total_seconds()
        self._clock = clock
        self._mutex = threading.Lock()
        self._generations: tuple[_Generation, ...] = (_Generation(make(), clock()),)

    @property
    def fill(self) -> float:
        """Fill level of the newest generation; above 1.0 it says "maybe" more often than configured."""
        return self._generations[-1].added / self._expected

    @property
    def generations(self) -> int:
        """Number of filters."""
        return len(self._generations)

    def maybe(self, identities: Sequence[str]) -> list[str]:
        """Return identities that may have been added; all others never were, or longer ago than `keep`."""
        generations = self._generations
        if len(generations) == 1:
            bits = generations[0].bits
            return [identity for identity in identities if identity in bits]
        all_bits = [generation.bits for generation in generations]
        return [identity for identity in identities if any(identity in bits for bits in all_bits)]

    def add(self, identities: Collection[str]) -> None:
        """Add identities."""
        if not identities:
            return
        now = self._clock()
        with self._mutex:
            newest = self._generations[-1]
            if newest.added >= self._expected:
                newest = self._next(now)
            new = [identity for identity in identities if identity not in newest.bits]
            newest.bits.update(new)
            newest.added += len(new)
            newest.last = now

    def _next(self, now: float) -> _Generation:
        alive = [generation for generation in self._generations if generation.last + self._keep >= now]
        if len(alive) < _MOST_GENERATIONS:
            alive.append(_Generation(self._make(), now))
        self._generations = tuple(alive)
        return alive[-1]


def local_filter(
    expected: int, false_positives: float, keep: timedelta, clock: Callable[[], float]
) -> SeenFilter:
    """Return a filter in this process' memory.

    Raises:
        MissingExtra: the package `rbloom` is not installed.
    """
    if find_spec("rbloom") is None:
        raise MissingExtra(
            "a Bloom filter in memory needs the package 'rbloom', which is not installed: pip install 'oncemq[bloom]'"
        )
    from rbloom import Bloom  # noqa: PLC0415 - an optional package

    return SeenFilter(lambda: Bloom(expected, false_positives), expected, keep, clock)
