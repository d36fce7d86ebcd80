"""What is purged in the background, how often, and how long it is kept."""

from collections.abc import Callable, Mapping
from datetime import timedelta

from sqlalchemy import Engine

from oncemq.clock import Clock
from oncemq.ledger.purge import BATCH, CLAIMS, HISTORY, LOCKED_ROWS, PROCESSED, SUSPECTS, Aged, purge
from oncemq.strategy import UpkeepTask

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
        UpkeepTask(
            f"purge {scope}", EVERY, _purger((PROCESSED, CLAIMS, HISTORY, SUSPECTS), scope, age, clock)
        )
        for scope, age in sorted(keep.items())
    ]
    return [*tasks, UpkeepTask("purge mutexes", EVERY, _purger((LOCKED_ROWS,), None, KEEP_MUTEXES, clock))]


def _purger(
    tables: tuple[Aged, ...], scope: str | None, keep: timedelta, clock: Clock
) -> Callable[[Engine], bool]:
    def step(engine: Engine) -> bool:
        before = clock.now() - keep
        full = [purge(engine, aged, before, scope=scope) >= BATCH for aged in tables]
        return any(full)

    return step
