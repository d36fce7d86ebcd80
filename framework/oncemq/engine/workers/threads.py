"""Threads that end together; a failing thread is reported, and the app notices that it has ended."""

import threading
from collections.abc import Callable

from oncemq.common.clock import Clock


class Threads:
    """Daemon threads of one purpose.

    Args:
        name: the prefix of their numbered names.
        failed: called with errors that ended a thread.
        clock: the source of time.
    """

    def __init__(self, name: str, failed: Callable[[str, BaseException], None], clock: Clock) -> None:
        self._name = name
        self._failed = failed
        self._clock = clock
        self._threads: list[threading.Thread] = []

    def start(self, loop: Callable[[], None]) -> None:
        """Run `loop` in one more thread."""
        name = f"oncemq-{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._surfacing, args=(loop,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, until: float) -> bool:
        """Wait until `until`, in the clock's monotonic seconds; returns whether all have ended."""
        for thread in self._threads:
            thread.join(max(0.0, until - self._clock.monotonic()))
        return self.ended()

    def alive(self) -> bool:
        """Return whether all are running."""
        return all(thread.is_alive() for thread in self._threads)

    def ended(self) -> bool:
        """Return whether none is running."""
        return not any(thread.is_alive() for thread in self._threads)

    def _surfacing(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            # Also SystemExit, which would end the thread silently. The app ends: unsettled deliveries are redelivered.
            self._failed(f"a thread of {self._name}", error)
