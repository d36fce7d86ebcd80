"""Background purges: tables, interval, pace and retention."""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import ColumnElement, Dialect, Engine, or_

from oncemq.common.clock import Clock
from oncemq.contracts.strategy import UpkeepTask
from oncemq.ledger.purge import (
    AUDIT,
    BATCH,
    CLAIMS,
    FINAL_FAILURES,
    HISTORY,
    LOCKED_ROWS,
    PROCESSED,
    SUSPECTS,
    Aged,
    came_since,
    expired,
    purge,
)
from oncemq.upkeep.pace import Pace

EVERY = timedelta(minutes=1)
KEEP_MUTEXES = timedelta(hours=1)
"""How long a mutex row stays after its last use; no transaction lasts so long."""


def purge_tasks(app: str, keep: Mapping[str, timedelta], clock: Clock) -> list[UpkeepTask]:
    """Return one task per ledger scope, one for operators' changes that concern no consumer, and one for all mutexes.

    Args:
        app: the app's name.
        keep: how long records are kept, by ledger scope.
        clock: the time source.
    """
    tasks = [
        purge_task(
            f"purge {scope}",
            Purger((PROCESSED, FINAL_FAILURES, CLAIMS, HISTORY, AUDIT, SUSPECTS), scope, age, clock),
        )
        for scope, age in sorted(keep.items())
    ]
    if keep:
        tasks.append(purge_task(f"purge {app}", Purger((AUDIT,), app, max(keep.values()), clock)))
    return [*tasks, purge_task("purge mutexes", Purger((LOCKED_ROWS,), None, KEEP_MUTEXES, clock))]


def purge_task(name: str, purger: "Purger") -> UpkeepTask:
    """Return the background task of one purger."""
    return UpkeepTask(name, EVERY, purger, rest=purger.rest, wanted=purger.wanted)


class Purger:
    """Deletes expired rows, a batch of each table per step, until none is left.

    Args:
        tables: to purge; one with less than a batch is skipped in the following steps, for some seconds.
        scope: of the rows; None = all scopes.
        keep: how long rows are kept.
        clock: the time source.
    """

    def __init__(self, tables: tuple[Aged, ...], scope: str | None, keep: timedelta, clock: Clock) -> None:
        self._tables = self._left = tables
        self._scope = scope
        self._keep = keep
        self._clock = clock
        self._pace = Pace(clock)

    def __call__(self, engine: Engine) -> bool:
        """Run one step; returns whether there is more."""
        before = self._clock.now() - self._keep
        gone = [
            (aged, purge(engine, aged, before, keep=self._keep, scope=self._scope)) for aged in self._left
        ]
        self._left = tuple(aged for aged, rows in gone if rows >= BATCH)
        if not self._left:
            self._left = self._tables
            self._pace.done()
            return False
        rows = sum(rows for _, rows in gone)
        if self._pace.went(rows, lambda seconds, most: self._came(engine, seconds, most)):
            # Meanwhile rows of the other tables have expired.
            self._left = self._tables
        return True

    def wanted(self, dialect: Dialect) -> ColumnElement[bool]:
        """Return the condition under which a row of any table has expired."""
        before = self._clock.now() - self._keep
        return or_(
            *(expired(dialect, each, before, keep=self._keep, scope=self._scope) for each in self._tables)
        )

    def rest(self) -> float:
        """Return the rest as a multiple of the last step's time."""
        return self._pace.rest

    def _came(self, engine: Engine, seconds: float, most: int) -> int:
        since = self._clock.now() - timedelta(seconds=seconds)
        return sum(came_since(engine, aged, since, most, scope=self._scope) for aged in self._left)
