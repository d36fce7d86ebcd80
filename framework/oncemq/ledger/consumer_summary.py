"""Reads a summary of whole consumers from the ledger, for operators."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from oncemq.ledger.coordination import workers
from oncemq.ledger.coordination.workers import Worker
from oncemq.ledger.messages import parking
from oncemq.ledger.records import claims, processed

SILENT_AFTER = timedelta(seconds=60)
"""A process without a heartbeat for so long counts as dead."""


@dataclass(frozen=True, slots=True)
class ConsumerSummary:
    """Summary of a consumer in the ledger of one database.

    Args:
        parked: number of parked messages.
        next_due: when the first of those with a time is due, aware; None if there is none.
        last_applied: when the latest message took effect, aware; None if nothing is recorded.
    """

    parked: int
    next_due: datetime | None
    last_applied: datetime | None


def of_consumer(connection: Connection, scope: str) -> ConsumerSummary:
    """Return the summary of a consumer, each figure from an index.

    Args:
        connection: for reading.
        scope: the consumer's ledger scope.
    """
    parked = parking.TABLE.c
    waiting = select(func.count(), func.min(parked.due_at)).where(parked.consumer == scope)
    count, next_due = connection.execute(waiting).one()
    applied = [
        connection.execute(select(func.max(moment)).where(consumer == scope)).scalar()
        for consumer, moment in (
            (processed.TABLE.c.consumer, processed.TABLE.c.processed_at),
            (claims.TABLE.c.consumer, claims.TABLE.c.done_at),
        )
    ]
    return ConsumerSummary(count, next_due, max((at for at in applied if at is not None), default=None))


def processes(connection: Connection, app: str) -> list[Worker]:
    """Return the processes of an app that have not signed off, by their start."""
    table = workers.TABLE.c
    found = select(table.worker, table.host, table.pid, table.started_at, table.seen_at)
    rows = connection.execute(found.where(table.app == app).order_by(table.started_at, table.worker))
    return [Worker(*row) for row in rows]
