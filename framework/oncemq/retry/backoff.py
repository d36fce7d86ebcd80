"""Retry policy: how many times a message is tried and how long the pauses between the tries are."""

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
        factor: every further pause is so many times the one before.
        max: no pause is longer, jitter aside.
        jitter: each pause is drawn from ± this share of itself, so that failures do not come back in step.
    """

    attempts: int = 6
    first: timedelta = timedelta(seconds=1)
    factor: float = 4.0
    max: timedelta = timedelta(minutes=10)
    jitter: float = 0.2

    def pause(self, attempt: int, draw: random.Random) -> timedelta:
        """Return how long to wait after try number `attempt` failed."""
        return self._plain_pause(attempt) * (1 + self.jitter * draw.uniform(-1, 1))

    def _plain_pause(self, attempt: int) -> timedelta:
        try:
            seconds = self.first.total_seconds() * self.factor ** max(0, attempt - 1)
        except OverflowError:
            return self.max
        return min(self.max, timedelta(seconds=min(seconds, self.max.total_seconds())))

    def horizon(self) -> timedelta:
        """Return the longest time all pauses together can take."""
        pauses = (self._plain_pause(attempt) for attempt in range(1, self.attempts))
        return sum(pauses, timedelta(0)) * (1 + self.jitter)

    def longest_pause(self) -> timedelta:
        """Return the longest that a single pause can be; nothing where there is none."""
        return self._plain_pause(self.attempts - 1) * (1 + self.jitter) if self.attempts > 1 else timedelta(0)


def pause_before_turn(headers: Mapping[str, str], now: datetime) -> timedelta:
    """Return for how long the broker keeps a message that came before what it needs; longer the longer it has waited.

    Args:
        headers: the message's; they say since when it has waited.
        now: the current time.
    """
    since = names.time_of(headers, names.WAITING_SINCE)
    waited = (now - since).total_seconds() if since is not None else 0.0
    pause = min(_LONGEST_WAIT, max(_SHORTEST_WAIT, waited / 2))
    return timedelta(seconds=pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
