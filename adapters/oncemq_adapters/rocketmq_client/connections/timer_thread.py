"""One thread that does things at their time, one after the other; what fails is said and does not stop the rest."""

import heapq
import itertools
import time
from collections.abc import Callable
from threading import Condition, Thread, current_thread
from typing import Any

import structlog

Job = Callable[..., object]


class TimerThread:
    """A list of things to do later.

    Args:
        name: of its thread.
    """

    def __init__(self, name: str) -> None:
        self._changed = Condition()
        self._jobs: list[tuple[float, int, Job, tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._over = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def at(self, delay: float, job: Job, *arguments: Any) -> None:
        """Do this after so many seconds."""
        with self._changed:
            heapq.heappush(self._jobs, (time.monotonic() + delay, next(self._numbers), job, arguments))
            self._changed.notify()

    def every(self, seconds: float, job: Job) -> None:
        """Do this again and again, first after so many seconds."""

        def again() -> None:
            try:
                job()
            finally:
                self.at(seconds, again)

        self.at(seconds, again)

    def stop(self, timeout: float) -> None:
        """Stop; waits for the running task."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            job, arguments = found
            try:
                job(*arguments)
            except Exception:
                structlog.get_logger("oncemq").exception("a task of the RocketMQ adapter failed")

    def _next(self) -> tuple[Job, tuple[Any, ...]] | None:
        with self._changed:
            while not self._over:
                wait = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._jobs)[2:]
                self._changed.wait(wait)
        return None
