"""Limits how many messages a second a consumer takes in this process."""

from collections.abc import Sequence
from typing import Final, Protocol

from oncemq.common.clock import Clock

_BURST: Final = 0.2
"""Seconds whose messages may be taken at once."""


def burst_of(rate: float, burst: int | None) -> float:
    """Return how many messages may be taken at once; without a number those of a fifth of a second, and at least one."""
    return max(1.0, rate * _BURST) if burst is None else float(burst)


class Limit(Protocol):
    """What a scheduler asks before it hands out messages; `prepare` is called without its lock, all others with it."""

    @property
    def most(self) -> int:
        """How many messages it is sure to allow at once, some time."""
        ...

    def prepare(self) -> None:
        """Do what takes time, such as a question over the network."""
        ...

    def allowance(self) -> int:
        """Return how many messages may be taken now."""
        ...

    def spend(self, messages: int) -> None:
        """Count messages that were taken."""
        ...

    def wait(self, messages: int = 1) -> float:
        """Return the seconds until so many may be taken at once, `most` or fewer."""
        ...


class RateLimit:
    """A bucket that fills with time and empties with messages; not thread-safe.

    Args:
        rate: messages a second, more than 0.
        clock: the source of time.
        burst: what the bucket holds, in messages; None = those of a fifth of a second.
    """

    def __init__(self, rate: float, clock: Clock, burst: int | None = None) -> None:
        self._rate = rate
        self._clock = clock
        self._most = burst_of(rate, burst)
        self._left = self._most
        self._at = clock.monotonic()

    @property
    def most(self) -> int:
        """How many messages it is sure to allow at once, some time."""
        return int(self._most)

    def prepare(self) -> None:
        """Do nothing."""

    def allowance(self) -> int:
        """Return how many messages may be taken now."""
        now = self._clock.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return int(self._left)

    def spend(self, messages: int) -> None:
        """Count messages that were taken."""
        self._left -= messages

    def wait(self, messages: int = 1) -> float:
        """Return the seconds until so many may be taken at once."""
        return max(0.0, (messages - self._left) / self._rate)


class LowestOf:
    """Several limits that hold at the same time.

    Args:
        limits: at least one.
    """

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits

    @property
    def most(self) -> int:
        """How many messages each is sure to allow at once."""
        return min(limit.most for limit in self._limits)

    def prepare(self) -> None:
        """Prepare each."""
        for limit in self._limits:
            limit.prepare()

    def allowance(self) -> int:
        """Return how many messages all of them allow."""
        return min(limit.allowance() for limit in self._limits)

    def spend(self, messages: int) -> None:
        """Count messages that were taken, with each."""
        for limit in self._limits:
            limit.spend(messages)

    def wait(self, messages: int = 1) -> float:
        """Return the seconds until each may allow so many."""
        return max(limit.wait(messages) for limit in self._limits)


def lowest(*limits: Limit | None) -> Limit | None:
    """Return one limit for all that there are; None without any."""
    found = [limit for limit in limits if limit is not None]
    return LowestOf(found) if len(found) > 1 else next(iter(found), None)
