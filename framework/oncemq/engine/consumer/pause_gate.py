"""Pauses a consumer's workers: for growing times while a lasting error persists, or until an order to pause has ended."""

import math
import random
import threading

from oncemq.common.clock import Clock

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0


class PauseGate:
    """Closed by errors, reopened by time; every success resets the next pause to the shortest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._closed_until = 0.0
        self._closed_since: float | None = None
        self._next_pause = _FIRST_PAUSE
        self._stopped = False
        self._held = False

    def hold(self) -> None:
        """Let no unit pass until `let_go`; errors and successes do not change that."""
        self._held = True

    def let_go(self) -> None:
        """Let units pass again, if no error keeps them."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    @property
    def held(self) -> bool:
        """Whether units wait for `let_go`."""
        return self._held

    def close(self, at_least: float = 0.0) -> float:
        """Let no unit pass for a while, at least the given seconds; returns the pause in seconds."""
        with self._changed:
            pause = max(at_least, self._next_pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            self._next_pause = min(_LONGEST_PAUSE, 2 * self._next_pause)
            now = self._clock.monotonic()
            self._closed_until = now + pause
            if self._closed_since is None:
                self._closed_since = now
            return pause

    def succeeded(self) -> float | None:
        """Reset after an error; returns the seconds it lasted, None when there was none."""
        if self._closed_since is None:
            return None
        with self._changed:
            if self._closed_since is None:
                return None
            lasted = self._clock.monotonic() - self._closed_since
            self._closed_since = None
            self._next_pause = _FIRST_PAUSE
            return lasted

    @property
    def troubled(self) -> bool:
        """Whether an error was seen, and no success since."""
        return self._closed_since is not None

    def left(self) -> float:
        """Return the seconds until units may run; 0 if they may run now, infinity while they are held."""
        return math.inf if self._held else max(0.0, self._closed_until - self._clock.monotonic())

    def wait(self) -> None:
        """Return when units may run, or when stopped."""
        while not self._stopped:
            left = self._closed_until - self._clock.monotonic()
            if self._held:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or not self._held)
            elif left <= 0:
                return
            else:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, left)

    def sleep(self, seconds: float) -> None:
        """Wait this long, or until stopped."""
        until = self._clock.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._clock.monotonic() >= until, seconds)

    def stop(self) -> None:
        """Release all waiting workers, permanently."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped
