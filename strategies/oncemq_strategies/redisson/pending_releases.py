"""Releases that Redis did not hear: said again, since nobody else gets a lock that its holder is done with."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncemq.errors import RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Call

_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class Release:
    """A release of locks whose owner acquires nothing any more: one that comes late takes no lock from anybody.

    Attributes:
        call: what is said.
        until: the monotonic second at which the last of the locks has ended by itself.
    """

    call: Call
    until: float


class Unheard:
    """What is said again every second until Redis hears it, or there is nothing left to release.

    Args:
        client: through which the locks were acquired.

    Attributes:
        due_at: the monotonic second at which it is said again; infinite when Redis has heard everything.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._releases: list[Release] = []
        self.due_at = math.inf

    def add(self, releases: Iterable[Release]) -> None:
        """Remember what Redis did not hear."""
        self._releases += releases
        if self._releases:
            self.due_at = min(self.due_at, time.monotonic() + _AGAIN)

    def take(self, now: float) -> list[Release]:
        """Return what is due at the monotonic second `now`, and forget it."""
        if now < self.due_at:
            return []
        taken, self._releases, self.due_at = self._releases, [], math.inf
        return [release for release in taken if now < release.until]

    def say(self, releases: Sequence[Release]) -> list[Release]:
        """Return what Redis has not heard this time either."""
        answers = self._client.together([release.call for release in releases])
        return [
            release
            for release, answer in zip(releases, answers, strict=True)
            if isinstance(answer, RedisUnavailable)
        ]
