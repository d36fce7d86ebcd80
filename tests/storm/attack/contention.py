"""Troubles that a rival's connection makes for a handler's transaction: each is real, once for each message."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any

from sqlalchemy import Engine, event, func, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from support.effects import Effect, Shared

ROWS = 40
"""Shared rows; the rival of a deadlock changes most of them, so that the handler's transaction is the cheaper victim."""
_MEETING, _CROSSED = 1, 2
_DEADLINE = 30.0
_SIGNAL = {
    "postgresql": "DO $$ BEGIN RAISE EXCEPTION 'forced' USING ERRCODE = '40001'; END $$",
    "mysql": "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213",
}
_IMPATIENT = f"SELECT points FROM shared WHERE id = {_CROSSED} FOR UPDATE NOWAIT"

KINDS = ("deadlock", "lock time-out", "serialization failure", "raised")


class Contention:
    """A handler that writes half of its effect, meets one trouble for each troubled message, and writes the rest.

    Args:
        engine: the database; its shared rows are there.
        kind: one of `KINDS`.

    Attributes:
        met: the server's codes of the troubles that really happened.
    """

    def __init__(self, engine: Engine, kind: str) -> None:
        self.met: Counter[str] = Counter()
        self._engine = engine
        self._troubled: set[str] = set()
        self._threads = ThreadPoolExecutor(1)
        self._holder = engine.connect()
        self._rival: int | None = None
        self._trouble: Callable[[Session], Any] = {
            "deadlock": self._deadlock,
            "lock time-out": self._wait_too_long,
            "serialization failure": self._be_overtaken,
            "raised": self._be_told,
        }[kind]
        if kind == "lock time-out":
            self._holder.execute(update(Shared).where(Shared.id == _CROSSED).values(points=1))

    def close(self) -> None:
        """Let go of everything."""
        self._threads.shutdown()
        self._holder.rollback()
        self._holder.close()

    def handle(self, order: dict, session: Session) -> None:  # type: ignore[type-arg]
        """Leave two rows; every second of the troubled swallows the error, and returns with one of them."""
        number = int(order["number"])
        session.add(Effect(order_id=order["id"], key="first"))
        if order["troubled"] and order["id"] not in self._troubled:
            try:
                self._trouble(session)
            except DBAPIError as error:
                self._troubled.add(order["id"])
                self.met[_code(error)] += 1
                if number % 2:
                    return
                raise
        session.add(Effect(order_id=order["id"], key="second"))

    def _deadlock(self, session: Session) -> None:
        """Lock two rows crosswise with a rival."""
        ready, go = threading.Event(), threading.Event()
        rival = self._threads.submit(self._cross, ready, go)
        if not ready.wait(_DEADLINE):
            raise AssertionError("the rival did not come")
        try:
            session.execute(update(Shared).where(Shared.id == _MEETING).values(points=2))
            go.set()
            self._wait_for_the_rival()
            session.execute(update(Shared).where(Shared.id == _CROSSED).values(points=2))
        finally:
            go.set()
            # What failed has let its locks go already; what succeeded made the rival fail.
            rival.result(_DEADLINE)

    def _wait_for_the_rival(self) -> None:
        """Return when the rival waits for this transaction.

        PostgreSQL looks for a deadlock once for each wait: before the rival waits there is none, and the lock time-out would end it.
        """
        until = monotonic() + _DEADLINE
        while self._rival is not None and monotonic() < until:
            with self._engine.connect() as connection:
                waits = select(func.cardinality(func.pg_blocking_pids(self._rival)) > 0)
                if connection.execute(waits).scalar_one():
                    return

    def _cross(self, ready: threading.Event, go: threading.Event) -> None:
        with self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                # The transaction that looks for a deadlock first is its victim.
                connection.execute(text("SET LOCAL deadlock_timeout = '20s'"))
                self._rival = connection.execute(select(func.pg_backend_pid())).scalar_one()
            connection.execute(update(Shared).where(Shared.id > _MEETING).values(points=Shared.points + 1))
            ready.set()
            go.wait(_DEADLINE)
            with suppress(DBAPIError):
                connection.execute(update(Shared).where(Shared.id == _MEETING).values(points=1))
            connection.rollback()

    def _wait_too_long(self, session: Session) -> None:
        """Ask for a row that someone holds."""
        session.execute(text(_IMPATIENT))

    def _be_overtaken(self, session: Session) -> None:
        """Change a row that someone has changed since it was read."""
        session.execute(select(Shared.points).where(Shared.id == _MEETING))
        with self._engine.begin() as rival:
            rival.execute(update(Shared).where(Shared.id == _MEETING).values(points=Shared.points + 1))
        session.execute(update(Shared).where(Shared.id == _MEETING).values(points=Shared.points + 1))

    def _be_told(self, session: Session) -> None:
        """Have the server raise what it raises for a serialization failure."""
        session.execute(text(_SIGNAL[session.connection().dialect.name]))


def snapshots(engine: Engine) -> None:
    """Have every transaction of `engine` see one moment, so that PostgreSQL refuses what came later."""
    event.listen(
        engine,
        "begin",
        lambda connection: connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
    )


def _code(error: DBAPIError) -> str:
    original: Any = error.orig
    code = original.args[0]
    return str(code) if isinstance(code, int) else str(original.sqlstate)
