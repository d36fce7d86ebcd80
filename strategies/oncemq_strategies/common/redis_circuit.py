"""Circuit breaker for Redis: while Redis fails, optional questions are skipped, with one warning."""

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Call

_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds; a call may take Redis' whole time-out, so few units should pay for it."""

_log = logging.getLogger(__name__)


class Circuit:
    """Circuit breaker, one per client, by `client.shared(Circuit)`; thread-safe.

    Closed, calls go to Redis. A failure opens it: calls are skipped for a while, then one unit tries, and the pause
    grows while that fails.

    Args:
        client: the Redis client.
        clock: monotonic seconds.
    """

    def __init__(self, client: RedisClient, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._mutex = threading.Lock()
        self._pause = 0.0
        self._opened = 0.0
        self._try_at = 0.0

    @property
    def open(self) -> bool:
        """Whether Redis has failed and not answered since."""
        return self._pause > 0.0

    def ask(self, calls: Callable[[], Sequence[Call]]) -> list[Any] | None:
        """Return the answers, with failures in place of missing ones; None while the circuit is open.

        Args:
            calls: makes the calls; not called while the circuit is open, and may itself fail as Redis does.
        """
        trial = self.open
        if not self._may_ask():
            return None
        try:
            answers = self._client.together(calls())
        except (RedisUnavailable, RedisRefused) as error:
            self._failed(error, trial=trial)
            return None
        failures = [failure for failure in answers if isinstance(failure, RedisUnavailable | RedisRefused)]
        # One key of another type does not open the circuit; a missing answer does.
        if any(isinstance(failure, RedisUnavailable) for failure in failures) or 0 < len(failures) == len(
            answers
        ):
            self._failed(failures[0], trial=trial)
        else:
            self._answered()
        return answers

    def _may_ask(self) -> bool:
        if not self._pause:
            return True
        with self._mutex:
            now = self._clock()
            if now < self._try_at:
                return False
            self._try_at = now + self._pause
            return True

    def _failed(self, error: Exception, *, trial: bool) -> None:
        with self._mutex:
            first = not self._pause
            now = self._clock()
            if first:
                self._opened = now
            elif not trial:
                return  # sent before the circuit opened: the same failure again
            self._pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, 2 * self._pause))
            self._try_at = now + self._pause
        if first:
            _log.warning("%s; until it answers again, the database decides alone about duplicates", error)

    def _answered(self) -> None:
        if not self._pause:
            return
        with self._mutex:
            lasted, self._pause = self._clock() - self._opened, 0.0
        _log.warning("%s answers again after %.1f s", self._client.where, lasted)
