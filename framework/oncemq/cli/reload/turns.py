"""Has the processes of an app replace their workers one process after the other, by a lease in the ledger."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from oncemq.ledger.coordination import leases
from oncemq.ledger.database.server_clock import server_time

LEASE: Final = timedelta(seconds=30)
"""A process that has died in its turn, or does not reach the ledger, is passed over after so long."""
KEEP_EVERY: Final = 5.0
"""Seconds between two renewals."""
LOOK_EVERY: Final = 1.0
"""Seconds between two looks whether the turn is free."""
_CLOSE_WITHIN: Final = 2.0
_OWNER_SIZE: Final = 64


class Turns:
    """The turn of one process. At most one process of the app has it, unless it has not reached the ledger for `LEASE`.

    Args:
        engine: the app's database.
        app: the app's name.
        process: the name of this process, unique in the app.
    """

    def __init__(self, engine: Engine, app: str, process: str) -> None:
        self._engine = engine
        self._name = f"{app}:reload"
        self._owner = process[-_OWNER_SIZE:]  # it ends with what is unique
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._failing = False
        self._ours = False
        self._log = structlog.get_logger("oncemq")

    def take(self, overtaken: Callable[[], bool]) -> bool:
        """Wait until it is this process's turn; returns False if something else is to be done before, or the process ends.

        Args:
            overtaken: whether something else is to be done before.
        """
        told = False
        while not self._closing.is_set():
            if self._acquire():
                return True
            if overtaken():
                return False
            if not told and not self._failing:
                told = True
                self._log.info("reload waits for its turn", behind=self._holder())
            self._closing.wait(LOOK_EVERY)
        return False

    def keep(self) -> None:
        """Extend the turn."""
        self._acquire()

    def end(self) -> None:
        """Let the next process have its turn, if the database answers; else it has it when the lease ends."""
        with self._lock:
            self._asked(self._release)
            self._ours = False

    def close(self) -> None:
        """End the turn for good, if the database answers soon: the process ends."""
        self._closing.set()
        if self._ours:
            ending = threading.Thread(target=self.end, name="oncemq-reload-turn", daemon=True)
            ending.start()
            ending.join(_CLOSE_WITHIN)

    def _acquire(self) -> bool:
        with self._lock:
            self._ours = not self._closing.is_set() and self._asked(self._extend)
            return self._ours

    def _extend(self) -> bool:
        with self._engine.begin() as connection:
            now = server_time(connection)
            return leases.acquire(connection, self._name, self._owner, now=now, until=now + LEASE)

    def _release(self) -> bool:
        with self._engine.begin() as connection:
            leases.release(connection, self._name, self._owner)
        return True

    def _asked(self, ask: Callable[[], bool]) -> bool:
        """Ask the ledger; False while it does not answer, which is logged once."""
        try:
            answer = ask()
        except SQLAlchemyError as error:
            if not self._failing:
                self._failing = True
                words = f"{type(error).__name__}: {error}"
                self._log.warning("the turn to reload cannot be read now", error=words)
            return False
        self._failing = False
        return answer

    def _holder(self) -> str:
        """Return the process whose turn it is, as far as known."""
        try:
            with self._engine.begin() as connection:
                return leases.holder(connection, self._name) or ""
        except SQLAlchemyError:
            return ""
