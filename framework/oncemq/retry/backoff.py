"""How many times a message is tried and how long the pauses between the tries are."""

import random
from dataclasses import dataclass
from datetime import timedelta


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
