"""Tells with one statement whether operators or dead processes have left something that each process must read."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Engine, Table, exists, select

from oncemq.common.clock import Clock
from oncemq.ledger.coordination import pauses, recordings
from oncemq.ledger.database.connect import glance
from oncemq.ledger.records import suspects

PAUSES: Final = pauses.TABLE
SUSPECTS: Final = suspects.TABLE
_TABLES: Final = (PAUSES, recordings.TABLE, SUSPECTS)
_KNOWN_FOR: Final = 1.5
"""Seconds for which an answer counts; those who look each second ask every other time."""


class LedgerSignals:
    """Tells which of some tables have rows of an app's consumers, so that an idle process reads none of them.

    Args:
        engine: the app's database; None without one: then a reader must look for itself.
        clock: the source of time.
        scopes: the ledger scopes of the consumers.
    """

    def __init__(self, engine: Engine | None, clock: Clock, scopes: Collection[str]) -> None:
        self._engine = engine
        self._clock = clock
        self._scopes = sorted(scopes)
        self._asked: float | None = None
        self._found: frozenset[Table] = frozenset()

    def any(self, table: Table) -> bool:
        """Return whether there are rows, as of a second ago at most; asks the database if that is not known."""
        if self._engine is None:
            return True
        now = self._clock.monotonic()
        if self._asked is None or now - self._asked >= _KNOWN_FOR:
            self._found = self._ask(self._engine)
            self._asked = now
        return table in self._found

    def recorded(self) -> bool:
        """Return whether operators record messages of these consumers."""
        return self.any(recordings.TABLE)

    def answered(self, within: float) -> bool:
        """Return whether the database has answered within the last seconds."""
        return self._asked is not None and self._clock.monotonic() - self._asked < within

    def _ask(self, engine: Engine) -> frozenset[Table]:
        there = [exists().where(table.c.consumer.in_(self._scopes)).label(table.name) for table in _TABLES]
        with glance(engine) as connection:
            row = connection.execute(select(*there)).one()
        return frozenset(table for table, found in zip(_TABLES, row, strict=True) if found)
