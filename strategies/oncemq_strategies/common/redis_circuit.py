"""Asking Redis only while it answers: what can do without it goes on without, and it is said once."""

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
"""Seconds; a question may take Redis' whole time-out, so few units shall be the ones that ask in vain."""

_log = logging.getLogger(__name__)


class Circuit:
    """One for each client, by `client.shared(Circuit)`; safe for any number of threads.

    Closed, questions go to Redis. A failure opens it: nobody asks for a while, then one unit tries, and the pause
    grows while that fails.

    Args:
        client: whom to ask.
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
        """Return the answers, a failure in place of one that there is none to; None while Redis is not to be asked.

        Args:
            calls: what to ask; not called while the circuit is open, and may itself fail as Redis does.
        """
        trial = self.open
        if not self._may_ask():
            return None
        try:
            answers = self._client.together(calls())
        except (RedisUnavailable, RedisRefused) as error:
            self._failed(error, trial=trial)
            return None
        failures = [one for one in answers if isinstance(one, RedisUnavailable | RedisRefused)]
        # One key of another type is no reason to stop asking; an answer that did not come is.
        if any(isinstance(one, RedisUnavailable) for one in failures) or 0 < len(failures) == len(answers):
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
                return  # asked before it opened: the same failure once more
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
