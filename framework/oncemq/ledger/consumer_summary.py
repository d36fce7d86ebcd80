"""Reads a summary of whole consumers from the ledger, for operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, literal_column, select

from oncemq.ledger.coordination import workers
from oncemq.ledger.coordination.workers import Worker
from oncemq.ledger.generations import records
from oncemq.ledger.messages import parking
from oncemq.ledger.records import claims, history, processed

SILENT_AFTER = timedelta(seconds=60)
"""A process without a heartbeat for so long counts as dead."""


@dataclass(frozen=True, slots=True)
class ConsumerSummary:
    """Summary of a consumer in the ledger of one database.

    Args:
        parked: number of parked messages.
        oldest_parked: since when the oldest of them waits, aware; None if there is none.
        next_due: when the first of those with a time is due, aware; None if there is none.
        last_applied: when the latest message took effect, aware; None if nothing is recorded.
    """

    parked: int
    oldest_parked: datetime | None
    next_due: datetime | None
    last_applied: datetime | None


def of_consumer(
    connection: Connection, scope: str, *, topic: str | None = None, generations: bool = False
) -> ConsumerSummary:
    """Return the summary of a consumer, each figure from an index.

    Args:
        connection: for reading.
        scope: the consumer's ledger scope.
        topic: parked messages of this one only; None = of all. Records have no topic.
        generations: its records are in generations.
    """
    parked = parking.TABLE.c
    waiting = select(func.count(), func.min(parked.parked_at), func.min(parked.due_at)).where(
        *parking.in_topic(scope, topic), parking.alive()
    )
    count, oldest, next_due = connection.execute(waiting).one()
    applied = [
        connection.execute(select(func.max(moment)).where(consumer == scope)).scalar()
        for consumer, moment in (
            (processed.TABLE.c.consumer, processed.TABLE.c.processed_at),
            (claims.TABLE.c.consumer, claims.TABLE.c.done_at),
        )
    ]
    if generations:
        applied.append(records.last_applied(connection, scope))
    return ConsumerSummary(
        count, oldest, next_due, max((at for at in applied if at is not None), default=None)
    )


def parked(connection: Connection, scope: str, topic: str | None = None) -> tuple[int, datetime | None]:
    """Return how many messages of a consumer are parked, of one topic or all, and since when the oldest waits, aware.

    Args:
        connection: for reading.
        scope: the consumer's ledger scope.
        topic: of these messages; None = all.
    """
    row = parking.TABLE.c
    mine = (*parking.in_topic(scope, topic), parking.alive())
    waiting = select(func.count(), func.min(row.parked_at)).where(*mine)
    count, oldest = connection.execute(waiting).one()
    return int(count), oldest


MOST_COUNTED = 1_000_000
"""Recent messages are counted up to this number."""


@dataclass(frozen=True, slots=True)
class Recent:
    """Messages of a consumer since a moment.

    Args:
        outcomes: their number by outcome: `applied`, `duplicate`, `stale`, `parked`, `retry`, or a dead letter's reason.
    """

    outcomes: Mapping[str, int]


def recent(connection: Connection, scope: str, since: datetime, *, generations: bool = False) -> Recent:
    """Count the outcomes of a consumer since a moment, from indexes.

    Args:
        connection: for reading.
        scope: the consumer's ledger scope.
        since: aware.
        generations: its records are in generations.
    """
    past, noted = processed.TABLE.c, history.TABLE.c
    applied = records.applied_since(connection, scope, since, MOST_COUNTED) if generations else 0
    for consumer, moment in (
        (past.consumer, past.processed_at),
        (claims.TABLE.c.consumer, claims.TABLE.c.done_at),
    ):
        some = (
            select(literal_column("1"))
            .where(consumer == scope, moment >= since)
            .limit(MOST_COUNTED)
            .subquery()
        )
        applied += int(connection.execute(select(func.count()).select_from(some)).scalar_one())
    late = (
        select(noted.outcome).where(noted.consumer == scope, noted.at >= since).limit(MOST_COUNTED).subquery()
    )
    counted = select(late.c.outcome, func.count()).group_by(late.c.outcome)
    others = {str(outcome): int(count) for outcome, count in connection.execute(counted)}
    return Recent(({"applied": applied} if applied else {}) | others)


def processes(connection: Connection, app: str) -> list[Worker]:
    """Return the processes of an app that have not signed off, by their start."""
    table = workers.TABLE.c
    found = select(table.worker, table.host, table.pid, table.started_at, table.seen_at)
    rows = connection.execute(found.where(table.app == app).order_by(table.started_at, table.worker))
    return [Worker(*row) for row in rows]
