"""Limits how many messages a second a consumer takes in this process."""

from oncemq.common.clock import Clock

_BURST = 0.2
"""Seconds whose messages may be taken at once."""


class RateLimit:
    """A bucket that fills with time and empties with messages; not thread-safe.

    Args:
        rate: messages a second, more than 0.
        clock: the source of time.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._most = max(1.0, rate * _BURST)
        self._left = self._most
        self._at = clock.monotonic()

    def allowance(self) -> int:
        """Return how many messages may be taken now."""
        now = self._clock.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return int(self._left)

    def spend(self, messages: int) -> None:
        """Count messages that were taken."""
        self._left -= messages

    def wait(self) -> float:
        """Return the seconds until the next one may be taken."""
        return max(0.0, (1.0 - self._left) / self._rate)
