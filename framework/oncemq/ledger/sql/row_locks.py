"""Locks rows of users' tables: whether to wait for a locked row, and for how long."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import Connection, Select, text

from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.ledger.sql.lock_waits import mysql_timeout

_SET_LOCAL = text("SELECT set_config('lock_timeout', :value, true)")


class Rival(StrEnum):
    """What to do when another transaction holds a row."""

    WAIT = "wait"
    """Wait for it until the time-out."""
    NOWAIT = "nowait"
    """Fail at once: the unit is run again after a pause, as after a deadlock."""
    SKIP = "skip"
    """Skip the row."""


@dataclass(frozen=True, slots=True)
class RowLock:
    """A way of locking rows in a SELECT; SQLite needs none, BEGIN IMMEDIATE has locked the whole database.

    Args:
        rival: what to do when a row is locked; None = the rows are not locked at all.
        timeout: for `wait`: how long; None = the usual lock time-out. MySQL and MariaDB count whole seconds.
        of: the mapped class whose table is locked, if others may be joined.
    """

    rival: Rival | None = Rival.WAIT
    timeout: timedelta | None = None
    of: Any = None

    @classmethod
    def none(cls) -> Self:
        """Return a lock mode that locks nothing."""
        return cls(None)

    @property
    def skips(self) -> bool:
        """Return whether an existing row may be skipped."""
        return self.rival is Rival.SKIP

    def on(self, rows: Select[Any]) -> Select[Any]:
        """Return the query with its locking clause."""
        if self.rival is None:
            return rows
        # FOR NO KEY UPDATE on PostgreSQL: rows that refer to these by foreign key may be inserted meanwhile.
        return rows.with_for_update(
            key_share=True, of=self.of, nowait=self.rival is Rival.NOWAIT, skip_locked=self.skips
        )

    @contextmanager
    def waiting(self, connection: Connection) -> Iterator[None]:
        """Set the lock time-out for statements; restored afterwards."""
        if self.timeout is None or self.rival is not Rival.WAIT:
            yield
        elif connection.dialect.name == "postgresql":
            before = connection.execute(text("SHOW lock_timeout")).scalar_one()
            connection.execute(_SET_LOCAL, {"value": f"{max(1, int(self.timeout.total_seconds() * 1000))}ms"})
            yield
            # After an error the transaction is lost, and the setting with it.
            connection.execute(_SET_LOCAL, {"value": before})
        elif connection.dialect.name in MYSQL_NAMES:
            with mysql_timeout(connection, max(1, math.ceil(self.timeout.total_seconds()))):
                yield
        else:
            yield


def can_skip_locked(connection: Connection) -> bool:
    """Return whether the database supports SKIP LOCKED."""
    if connection.dialect.name not in MYSQL_NAMES:
        return True
    since = (10, 6) if getattr(connection.dialect, "is_mariadb", False) else (8, 0, 1)
    return tuple(connection.dialect.server_version_info or ())[:3] >= since
