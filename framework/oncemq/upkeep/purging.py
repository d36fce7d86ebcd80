"""Purges in the background: what, how often, how fast, and how long it is kept."""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.contracts.strategy import UpkeepTask
from oncemq.ledger.purge import (
    BATCH,
    CLAIMS,
    HISTORY,
    LOCKED_ROWS,
    PROCESSED,
    SUSPECTS,
    Aged,
    came_since,
    purge,
)
from oncemq.upkeep.pace import Pace

EVERY = timedelta(minutes=1)
KEEP_MUTEXES = timedelta(hours=1)
"""How long a row that served as mutex stays after it was last taken; no transaction lasts so long."""


def purge_tasks(keep: Mapping[str, timedelta], clock: Clock) -> list[UpkeepTask]:
    """Return one task for each ledger scope, and one for the mutexes of all.

    Args:
        keep: how long records are kept, by ledger scope.
        clock: where time comes from.
    """
    tasks = [
        purge_task(f"purge {scope}", Purger((PROCESSED, CLAIMS, HISTORY, SUSPECTS), scope, age, clock))
        for scope, age in sorted(keep.items())
    ]
    return [*tasks, purge_task("purge mutexes", Purger((LOCKED_ROWS,), None, KEEP_MUTEXES, clock))]


def purge_task(name: str, purger: "Purger") -> UpkeepTask:
    """Return the background task of one purger."""
    return UpkeepTask(name, EVERY, purger, rest=purger.rest)


class Purger:
    """Deletes what is older than it is kept, a batch of each table in one step, until nothing of that is left.

    Args:
        tables: from which; one that had less than a batch is left out of the following steps, for some seconds.
        scope: whose rows; None = everybody's.
        keep: how long rows are kept.
        clock: where time comes from.
    """

    def __init__(self, tables: tuple[Aged, ...], scope: str | None, keep: timedelta, clock: Clock) -> None:
        self._tables = self._left = tables
        self._scope = scope
        self._keep = keep
        self._clock = clock
        self._pace = Pace(clock)

    def __call__(self, engine: Engine) -> bool:
        """Do one step; returns whether there is more."""
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
            # Meanwhile the rows of the others have grown old.
            self._left = self._tables
        return True

    def rest(self) -> float:
        """Return for how many times as long as the last step took there should be rest."""
        return self._pace.rest

    def _came(self, engine: Engine, seconds: float, most: int) -> int:
        since = self._clock.now() - timedelta(seconds=seconds)
        return sum(came_since(engine, aged, since, most, scope=self._scope) for aged in self._left)
