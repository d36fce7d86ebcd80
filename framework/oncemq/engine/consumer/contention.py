"""Adapts a consumer's units to contention: exclusive after a deadlock, no lock waits after a lock time-out."""

import threading
import time
from collections.abc import Callable, Hashable

_FIRST_STRETCH = 50
_LONGEST_STRETCH = 5000
_HURRIED = 30.0
"""Seconds until one unit waits for locks again; if its lock wait times out, the next units fail fast for as long."""

_PROVEN = 10.0
"""Seconds for which an error kind of one message, followed by successes, is attributed to each message separately."""
_REMEMBERED = 1000


class Contention:
    """Shared by a consumer's workers.

    After a deadlock units are exclusive for a while; then they run concurrently again. A deadlock soon
    after that doubles the next such period.

    After a lock wait timed out, which delays all messages of a unit by that time, units do not wait for locks for a
    while: the holder of those rows may be blocked for minutes, and many more messages may need them.

    Args:
        now: the clock, in seconds.

    Attributes:
        now: the same.
        commits: how many units of the consumer have been committed.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._hurried_until = float("-inf")
        self._mutex = threading.Lock()
        self._stretch = _FIRST_STRETCH
        self._left = 0
        self._since_probe = _FIRST_STRETCH
        self.commits = 0
        self._alone: dict[Hashable, set[str]] = {}
        self._own_until: dict[Hashable, float] = {}

    @property
    def exclusive(self) -> bool:
        """Whether the next unit must be the only one of its consumer."""
        return self._left > 0

    @property
    def lock_nowait(self) -> bool:
        """Whether units do not wait for locks now."""
        return self.now() < self._hurried_until

    def waited_in_vain(self) -> None:
        """Let units fail fast on locks for a while; later ones wait again, so that a contended row is locked in turn."""
        self._hurried_until = self.now() + _HURRIED

    def failed_alone(self, signature: Hashable, message: str) -> int:
        """Record that a message failed alone by an error of this kind; returns how many have since the last success.

        Shortly after a success such errors were attributed to single messages: then each counts as the only one.
        """
        with self._mutex:
            if self._own_until.get(signature, 0.0) > self.now():
                return 1
            messages = self._alone.setdefault(signature, set())
            if len(messages) < _REMEMBERED:
                messages.add(message)
            return len(messages)

    def deadlocked(self) -> bool:
        """Make units exclusive; returns whether they were not before."""
        with self._mutex:
            if self._left:
                return False
            if self._since_probe < self._stretch:
                self._stretch = min(_LONGEST_STRETCH, 2 * self._stretch)
            else:
                self._stretch = _FIRST_STRETCH
            self._left = self._stretch
            return True

    def succeeded(self) -> bool:
        """Count a committed unit; returns whether units may run concurrently again."""
        with self._mutex:
            self.commits += 1
            if self._alone:
                self._own_until = dict.fromkeys(self._alone, self.now() + _PROVEN)
                self._alone.clear()
            if not self._left:
                self._since_probe += 1
                return False
            self._left -= 1
            self._since_probe = 0
            return self._left == 0
