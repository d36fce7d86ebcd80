"""Housekeeping of a web process: purging in the background, and new connections after a fork."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.contracts.strategy import UpkeepTask
from oncemq.upkeep.runner import Upkeep

LOG = logging.getLogger("oncemq.idempotent_requests")


class Housekeeping:
    """Starts with the first request of a process: servers import the app first and fork afterwards.

    Args:
        engine: the ledger's database.
        task: run by one process at a time.
        clock: the time source.
    """

    def __init__(self, engine: Engine, task: UpkeepTask, clock: Clock) -> None:
        self._engine = engine
        self._task = task
        self._clock = clock
        self._lock = Lock()
        self._made_in = os.getpid()
        self._upkeep: Upkeep | None = None

    def awake(self) -> None:
        """Make sure that it runs in this process; cheap if it does."""
        if self._upkeep is not None and self._made_in == os.getpid():
            return
        with self._lock:
            if self._made_in != os.getpid():
                # The parent's connections stay with the parent: two processes on one socket mix up their answers.
                self._engine.dispose(close=False)
                self._made_in, self._upkeep = os.getpid(), None
            if self._upkeep is None:
                self._upkeep = Upkeep(self._engine, [self._task], self._clock, _warn)
                self._upkeep.start()

    def stop(self) -> None:
        """Stop the background work; a later request starts it again."""
        with self._lock:
            if self._upkeep is not None and self._made_in == os.getpid():
                self._upkeep.stop()
            self._upkeep = None


@contextmanager
def best_effort(doing: str) -> Iterator[None]:
    """Log errors and continue: for work that is repaired when a lease ends."""
    try:
        yield
    except Exception as error:
        _warn(doing, error)


def _warn(doing: str, error: BaseException) -> None:
    LOG.warning("%s failed: %s", doing, type(error).__name__, exc_info=error)
