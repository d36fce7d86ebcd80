"""Releases that did not reach Redis: repeated, so that other owners need not wait for the lease to end."""

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
    """A release of locks whose owner acquires nothing any more: a late one takes no lock from another owner.

    Attributes:
        call: the release.
        until: the monotonic second at which the last of the locks has expired.
    """

    call: Call
    until: float


class Unheard:
    """Releases repeated every second until Redis receives them, or nothing is left to release.

    Args:
        client: the client that acquired the locks.

    Attributes:
        due_at: the monotonic second of the next repetition; infinite when nothing is pending.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._releases: list[Release] = []
        self.due_at = math.inf

    def add(self, releases: Iterable[Release]) -> None:
        """Remember releases that did not reach Redis."""
        self._releases += releases
        if self._releases:
            self.due_at = min(self.due_at, time.monotonic() + _AGAIN)

    def take(self, now: float) -> list[Release]:
        """Return and remove the releases that are due at the monotonic second `now`."""
        if now < self.due_at:
            return []
        taken, self._releases, self.due_at = self._releases, [], math.inf
        return [release for release in taken if now < release.until]

    def say(self, releases: Sequence[Release]) -> list[Release]:
        """Send the releases; returns those that did not reach Redis this time either."""
        answers = self._client.together([release.call for release in releases])
        return [
            release
            for release, answer in zip(releases, answers, strict=True)
            if isinstance(answer, RedisUnavailable)
        ]
