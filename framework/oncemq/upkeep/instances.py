"""Forgets instances of broadcast consumers that never come back: their positions, records, retries and dead letters."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.contracts.strategy import UpkeepTask
from oncemq.ledger import renames
from oncemq.ledger.coordination import broadcast
from oncemq.ledger.purge import BATCH, CLAIMS, FINAL_FAILURES, HISTORY, PROCESSED, SUSPECTS, purge

EVERY: Final = timedelta(minutes=10)
_MANY: Final = (PROCESSED, FINAL_FAILURES, CLAIMS, HISTORY, SUSPECTS)


class InstancePurge:
    """Forgets the instances of one consumer that have not run for as long as records are kept.

    Args:
        consumer: `app.consumer`.
        keep: how long records are kept.
        clock: the source of time.
        tell: called with a line for each forgotten instance.
    """

    def __init__(self, consumer: str, keep: timedelta, clock: Clock, tell: Callable[[str], object]) -> None:
        self._consumer = consumer
        self._keep = keep
        self._clock = clock
        self._tell = tell

    def __call__(self, engine: Engine) -> bool:
        """Run one step; returns whether there is more."""
        before = self._clock.now() - self._keep
        with engine.connect() as connection:
            gone = broadcast.gone(connection, self._consumer, before, self._keep)
        if not gone:
            return False
        scope = gone[0]
        # All of its records are older than that, and there may be millions.
        parts = [purge(engine, aged, before, keep=self._keep, scope=scope) for aged in _MANY]
        if max(parts) >= BATCH:
            return True
        with engine.begin() as connection:
            # It may have come back just now.
            if not broadcast.forget(connection, scope, before):
                return True
            left = renames.left_by(connection, scope)
            renames.remove(connection, scope)
        lost = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in left.rows.items())
        self._tell(
            f"instance {scope} has not run for {format_duration(self._keep)} and is forgotten"
            f"{f', with {lost}' if lost else ''}; if it comes back, it begins as a new one"
        )
        return len(gone) > 1


def instance_tasks(
    consumers: Mapping[str, timedelta], clock: Clock, tell: Callable[[str], object]
) -> list[UpkeepTask]:
    """Return one task per broadcast consumer.

    Args:
        consumers: how long records are kept, by `app.consumer`.
        clock: the source of time.
        tell: called with a line for each forgotten instance.
    """
    return [
        UpkeepTask(f"instances {consumer}", EVERY, InstancePurge(consumer, keep, clock, tell))
        for consumer, keep in sorted(consumers.items())
    ]
