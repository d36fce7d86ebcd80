"""Takes the time from the database, so that moments written and compared by different processes share one clock.

A process measures the offset of its own clock from the database's at its start and each minute, and corrects the
moments it writes. Statements that delete or take over also compare with the database's clock themselves, so a
clock that jumped since then deletes nothing.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Dialect, Engine, literal, literal_column, text

from oncemq.common.clock import Clock
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.sql.column_types import MYSQL_NAMES, Moment

MEASURE_EVERY: Final = 60.0
"""Seconds between two measurements."""
WARN_FROM: Final = timedelta(seconds=1)
"""A clock offset of this size is worth a warning."""
REFUSE_FROM: Final = timedelta(minutes=5)
"""A process with a larger clock offset purges nothing and takes nothing over: other processes do it."""

_SURELY: Final = timedelta(milliseconds=2)
"""SQLite has a resolution of milliseconds."""
_QUICK: Final = timedelta(milliseconds=50)
_TRIES: Final = 3
_SUBSTITUTE: Final = "oncemq_clock"
"""Attribute of an engine's dialect, which belongs to that engine alone."""


def substitute_clock(engine: Engine, clock: Clock) -> None:
    """Let the ledger's statements on `engine` take `clock` for the database's; for tests that advance the time."""
    setattr(engine.dialect, _SUBSTITUTE, clock)


def share_clock(engine: Engine, other: Engine) -> None:
    """Let the ledger's statements on `other` take the same clock as those on `engine`."""
    clock = _substitute(engine.dialect)
    if clock is not None:
        substitute_clock(other, clock)


def _substitute(dialect: Dialect) -> Clock | None:
    found: Clock | None = getattr(dialect, _SUBSTITUTE, None)
    return found


def server_time(connection: Connection) -> datetime:
    """Return the database's time, aware, in UTC, whatever time zone the server or the session has."""
    name, clock = connection.dialect.name, _substitute(connection.dialect)
    if clock is not None:
        found = clock.now()
    elif name == "postgresql":
        found = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    elif name in MYSQL_NAMES:
        found = connection.execute(text("SELECT UTC_TIMESTAMP(6)")).scalar_one()
    else:
        found = datetime.fromisoformat(
            connection.execute(text("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")).scalar_one()
        )
    moment: datetime = found
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def server_moment(dialect: Dialect, ago: timedelta = timedelta(0)) -> ColumnElement[Any]:
    """Return, for a statement, the moment `ago` before the database's time at its beginning."""
    clock = _substitute(dialect)
    if clock is not None:
        return literal(clock.now() - ago, Moment())
    microseconds = ago // timedelta(microseconds=1)
    if dialect.name == "postgresql":
        sql = f"(statement_timestamp() - interval '{microseconds} microseconds')"
    elif dialect.name in MYSQL_NAMES:
        sql = f"(UTC_TIMESTAMP(6) - INTERVAL {microseconds} MICROSECOND)"
    else:
        sql = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '{-microseconds / 1_000_000:+.3f} seconds')"
    return literal_column(sql, Moment())


class LedgerClock:
    """The process's clock, corrected by the database's.

    Args:
        inner: the process's own.
        leading: the database whose time counts; with shards the first. None = the process's own time.

    Attributes:
        monotonic: see Clock; the process's own.
    """

    def __init__(self, inner: Clock, leading: Engine | None) -> None:
        self._inner = inner
        self._leading = leading
        self._offset = timedelta(0)
        self._skews: dict[Engine, timedelta] = {}
        self.monotonic: Callable[[], float] = inner.monotonic

    def now(self) -> datetime:
        """Return the database's time, as far as it is known."""
        return self._inner.now() + self._offset

    @property
    def skews(self) -> Mapping[Engine, timedelta]:
        """Return how far the process's clock is ahead of each database's, by the last measurement."""
        return dict(self._skews)

    def measure(self, engine: Engine) -> timedelta:
        """Query a database's time; returns the least that the process's clock is ahead of it."""
        found: list[tuple[timedelta, timedelta]] = []
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            for _ in range(_TRIES):
                before = self._inner.now()
                server = server_time(connection)
                took = self._inner.now() - before
                found.append((took, before + took / 2 - server))
                if took < _QUICK:
                    break
        took, ahead = min(found)
        doubt = took / 2 + _SURELY
        skew = max(ahead - doubt, timedelta(0)) if ahead > timedelta(0) else min(ahead + doubt, timedelta(0))
        self._skews[engine] = skew
        if engine is self._leading:
            self._offset = -skew
        return skew

    def untrusted(self, engine: Engine) -> bool:
        """Return whether the process's clock is too far from a database's to delete or take over rows there."""
        return abs(self._skews.get(engine, timedelta(0))) >= REFUSE_FROM
