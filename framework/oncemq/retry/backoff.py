"""Retry policy: number of attempts and length of the pauses between them, also by the exception's class."""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from oncemq.common.error_text import attribute
from oncemq.errors import Signal
from oncemq.message import headers as names

_COUNT = re.compile(r"0*[1-9][0-9]{0,8}", re.ASCII)
_SHORTEST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_MOST_CAUSES = 100
"""Exceptions that are examined below one: a chain may be long, and groups may be nested."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential pauses with jitter, up to a number of attempts.

    Args:
        attempts: tries in all, the first included.
        first: pause before the second try.
        factor: each further pause is this many times the previous one.
        max: no pause is longer, jitter aside.
        jitter: each pause is drawn from ± this share of itself, so that failed messages are not retried in step.
        immediate: further tries in the same process, without a pause, before a delivery counts as a failed attempt.
        by_error: other policies, for exceptions of these classes and their subclasses.
        asked_in: the header in which a producer may ask for fewer attempts; empty = producers have no say.
    """

    attempts: int = 6
    first: timedelta = timedelta(seconds=1)
    factor: float = 4.0
    max: timedelta = timedelta(minutes=10)
    jitter: float = 0.2
    immediate: int = 0
    by_error: "tuple[tuple[type[BaseException], RetryPolicy], ...]" = ()
    asked_in: str = ""

    def attempts_of(self, headers: Mapping[str, str]) -> int:
        """Return the attempts of a message with these headers: its producer may ask for fewer, never for more."""
        asked = _COUNT.fullmatch(headers.get(self.asked_in, "").strip()) if self.asked_in else None
        return self.attempts if asked is None else min(self.attempts, int(asked[0]))

    def for_error(self, error: BaseException | None) -> "RetryPolicy":
        """Return the policy for a message that failed with `error`.

        The error, its causes and the members of exception groups are compared with the classes of `by_error`; the most
        specific class wins, then the outermost exception. A `raise Retry` follows the plain policy.
        """
        if not self.by_error or error is None or issubclass(type(error), Signal):
            return self
        best, depth = self, 0
        for found in _with_causes(error):
            lineage = type(found).__mro__
            for kind, policy in self.by_error:
                if len(kind.__mro__) > depth and kind in lineage:
                    best, depth = policy, len(kind.__mro__)
        return best

    @property
    def tries_at_once(self) -> bool:
        """Return whether some errors are tried again immediately."""
        return any(policy.immediate for policy in self._all())

    @property
    def most_attempts(self) -> int:
        """Return the number of attempts for the error that may be tried most often."""
        return max(policy.attempts for policy in self._all())

    def _all(self) -> "tuple[RetryPolicy, ...]":
        return (self, *(policy for _, policy in self.by_error))

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
        """Return the longest total of all pauses, of the error that is retried for the longest time."""
        return max(policy._own_horizon() for policy in self._all())

    def _own_horizon(self) -> timedelta:
        pauses = (self._plain_pause(attempt) for attempt in range(1, self.attempts))
        return sum(pauses, timedelta(0)) * (1 + self.jitter)

    def longest_pause(self) -> timedelta:
        """Return the longest single pause; zero if there is none."""
        return max(
            policy._plain_pause(policy.attempts - 1) * (1 + policy.jitter)
            if policy.attempts > 1
            else timedelta(0)
            for policy in self._all()
        )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and the members of groups, from the outside to the inside; each once.

    An exception is a foreign object: its attributes may raise or lie.
    """
    left, seen = [error], set[int]()
    while left and len(seen) < _MOST_CAUSES:
        found = left.pop(0)
        if id(found) in seen or not issubclass(type(found), BaseException):
            continue
        seen.add(id(found))
        yield found
        members = attribute(found, "exceptions") if issubclass(type(found), BaseExceptionGroup) else ()
        left += members if type(members) is tuple else ()
        cause = attribute(found, "__cause__")
        if cause is None and attribute(found, "__suppress_context__") is not True:
            cause = attribute(found, "__context__")
        if cause is not None:
            left.append(cause)


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
