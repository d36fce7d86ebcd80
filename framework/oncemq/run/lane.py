"""Whether a consumer's units may run side by side: after a deadlock they run one at a time, and probe their way back."""

import threading

_FIRST_STRETCH = 50
_LONGEST_STRETCH = 5000


class Lane:
    """Shared by a consumer's workers.

    After a deadlock units are exclusive for a stretch; then they run side by side again. A deadlock soon
    after that makes the next stretch twice as long.

    Attributes:
        commits: how many units of the consumer have been committed.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._stretch = _FIRST_STRETCH
        self._left = 0
        self._since_probe = _FIRST_STRETCH
        self.commits = 0

    @property
    def exclusive(self) -> bool:
        """Whether the next unit must be the only one of its consumer."""
        return self._left > 0

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
        """Count a committed unit; returns whether units may run side by side again from now on."""
        with self._mutex:
            self.commits += 1
            if not self._left:
                self._since_probe += 1
                return False
            self._left -= 1
            self._since_probe = 0
            return self._left == 0
