"""Adapts a consumer's units to contention: exclusive after a deadlock, no lock waits after a lock time-out."""

import threading
import time
from collections.abc import Callable, Hashable

_FIRST_STRETCH = 50
_LONGEST_STRETCH = 5000
_PRICE = 20.0
"""Exclusive for so many times what the deadlock cost: then trying concurrent units takes a twentieth at most."""
_LONGEST_PRICE = 600.0
"""Seconds."""
_SLOW = 0.5
"""Seconds; a unit that took longer may have waited for another process's exclusive unit."""
_HURRIED = 30.0
"""Seconds until one unit waits for locks again; if its lock wait times out, the next units fail fast for as long."""

_PROVEN = 10.0
"""Seconds for which an error kind of one message, followed by successes, is attributed to each message separately."""
_REMEMBERED = 1000


class Contention:
    """Shared by a consumer's workers.

    After a deadlock units are exclusive for a while; then they run concurrently again. A deadlock soon
    after that doubles the next such period. It is never shorter than 20 times what the deadlock cost: PostgreSQL
    looks for one only after a second, in which all who take part wait.

    The processes of a consumer learn of it from each other: one that was not the victim has waited as long, and
    looks after such a unit whether another process's units are exclusive.

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
        self._exclusive_until = float("-inf")
        self._look = False
        self._slowest = 0.0
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

    def waited_without_success(self) -> None:
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

    def ran(self, seconds: float) -> None:
        """Note how long a unit took; after a slow one the next looks for exclusive units of other processes."""
        if seconds > _SLOW and not self._left:
            self._look, self._slowest = True, seconds

    def must_look(self) -> bool:
        """Return, once after a slow unit, that the next one is to look for exclusive units of other processes."""
        found, self._look = self._look, False
        return found

    def joined_others(self) -> bool:
        """Make units exclusive because another process's are; returns whether they were not before."""
        return self.deadlocked(self._slowest)

    def deadlocked(self, cost: float = 0.0) -> bool:
        """Make units exclusive; returns whether they were not before.

        Args:
            cost: seconds that the deadlock has taken.
        """
        with self._mutex:
            if self._left:
                return False
            if self._since_probe < self._stretch:
                self._stretch = min(_LONGEST_STRETCH, 2 * self._stretch)
            else:
                self._stretch = _FIRST_STRETCH
            self._left = self._stretch
            longer = min(_LONGEST_PRICE, _PRICE * cost * self._stretch / _FIRST_STRETCH)
            self._exclusive_until = self.now() + longer
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
            self._since_probe = 0
            if self._left > 1 or self.now() >= self._exclusive_until:
                self._left -= 1
            return self._left == 0
