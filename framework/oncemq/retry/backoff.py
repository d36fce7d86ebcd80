"""Retry policy: number of attempts and length of the pauses between them."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from oncemq.message import headers as names

_SHORTEST_WAIT = 1.0
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential pauses with jitter, up to a number of attempts.

    Args:
        attempts: tries in all, the first included.
        first: pause before the second try.
        factor: each further pause is this many times the previous one.
        max: no pause is longer, jitter aside.
        jitter: each pause is drawn from ± this share of itself, so that failed messages are not retried in step.
    """

    attempts: int = 6
    first: timedelta = timedelta(seconds=1)
    factor: float = 4.0
    max: timedelta = timedelta(minutes=10)
    jitter: float = 0.2

    def pause(self, attempt: int, draw: random.Random) -> timedelta:
        """Return the pause after try number `attempt` failed."""
        return self._plain_pause(attempt) * (1 + self.jitter * draw.uniform(-1, 1))

    def _plain_pause(self, attempt: int) -> timedelta:
        try:
            seconds = self.first.total_seconds() * self.factor ** max(0, attempt - 1)
        except OverflowError:
            return self.max
        return min(self.max, timedelta(seconds=min(seconds, self.max.total_seconds())))

    def horizon(self) -> timedelta:
        """Return the longest total of all pauses."""
        pauses = (self._plain_pause(attempt) for attempt in range(1, self.attempts))
        return sum(pauses, timedelta(0)) * (1 + self.jitter)

    def longest_pause(self) -> timedelta:
        """Return the longest single pause; zero if there is none."""
        return self._plain_pause(self.attempts - 1) * (1 + self.jitter) if self.attempts > 1 else timedelta(0)


def pause_before_turn(headers: Mapping[str, str], now: datetime) -> timedelta:
    """Return how long the broker delays a message that arrived before its predecessor; grows with the time waited.

    Args:
        headers: the message's; they tell since when it has waited.
        now: the current time.
    """
    since = names.time_of(headers, names.WAITING_SINCE)
    waited = (now - since).total_seconds() if since is not None else 0.0
    pause = min(_LONGEST_WAIT, max(_SHORTEST_WAIT, waited / 2))
    return timedelta(seconds=pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
