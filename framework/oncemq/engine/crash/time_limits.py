"""Time limits of handlers: the soft limit cancels the statement and dooms the run, the hard limit ends the process.

Nothing is ever raised into a running thread. One watchdog thread checks every worker's slot.
"""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

EXIT_HARD_LIMIT = 70
"""The process ended itself because a handler did not return within its hard time limit."""

_CHECKS_PER_LIMIT = 20
_LONGEST_PAUSE = 1.0


class TimeLimitSlot:
    """One worker's current work, written by the worker and read by the watchdog.

    Attributes:
        started: monotonic seconds at which the handler began; 0.0 while none runs.
        cancel: cancels the statement that the worker's connection is running.
        overdue: the `started` of the call that exceeded the soft limit.
        overrun: called before the hard limit ends the process.
    """

    __slots__ = ("_cancelling", "cancel", "overdue", "overrun", "started")

    def __init__(self, overrun: Callable[[], None] = lambda: None) -> None:
        self.overrun = overrun
        self.started = 0.0
        self.overdue = -1.0
        self.cancel: Callable[[], None] | None = None
        self._cancelling = threading.Lock()

    def expire(self, started: float) -> bool:
        """Cancel the call that began at `started`; returns False when it has already ended.

        `overdue` is written before `started` is read again, and the worker does the reverse: so
        either this sees that the call has ended, or the worker sees `overdue` and waits for the cancel. A
        late cancel affects no other call.
        """
        with self._cancelling:
            self.overdue = started
            if self.started != started:
                return False
            if self.cancel is not None:
                self.cancel()
            return True

    def wait_for_cancel(self) -> None:
        """Return when no cancel is in progress; for a worker whose call turns out to be overdue."""
        with self._cancelling:
            return


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """A consumer's limits; None = none."""

    soft: timedelta | None
    hard: timedelta | None


class Watchdog:
    """Checks slots until stopped.

    Args:
        monotonic: the clock used in slots.
        on_soft: called once for each overdue call, after its statement was cancelled.
        on_hard: called before the process ends.
        leave: ends the process; replaced in tests.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        on_soft: Callable[[str], None],
        on_hard: Callable[[str], None],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._monotonic = monotonic
        self._on_soft = on_soft
        self._on_hard = on_hard
        self._leave = leave
        self._watched: list[tuple[str, TimeLimitSlot, TimeLimits]] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, consumer: str, slot: TimeLimitSlot, limits: TimeLimits) -> None:
        """Watch `slot` from now on."""
        if limits.soft is None and limits.hard is None:
            return
        self._watched.append((consumer, slot, limits))
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="oncemq-watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching `slot`."""
        self._stopped.set()

    def _loop(self) -> None:
        while not self._stopped.wait(self._pause()):
            for consumer, slot, limits in list(self._watched):
                self.look(consumer, slot, limits)

    def _pause(self) -> float:
        shortest = min(
            limit.total_seconds()
            for _, _, limits in list(self._watched)
            for limit in (limits.soft, limits.hard)
            if limit is not None
        )
        return min(_LONGEST_PAUSE, shortest / _CHECKS_PER_LIMIT)

    def look(self, consumer: str, slot: TimeLimitSlot, limits: TimeLimits) -> None:
        """Compare one slot with its limits, and act."""
        started = slot.started
        if started == 0.0:
            return
        elapsed = self._monotonic() - started
        if limits.hard is not None and elapsed > limits.hard.total_seconds():
            try:
                slot.overrun()
                self._on_hard(consumer)
                faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
            finally:
                self._leave(EXIT_HARD_LIMIT)
        elif (
            limits.soft is not None
            and elapsed > limits.soft.total_seconds()
            and slot.overdue != started
            and slot.expire(started)
        ):
            self._on_soft(consumer)
