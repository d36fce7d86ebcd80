"""Recordings of traffic that operators ask for, and what workers have recorded until the operator's command fetches it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    String,
    delete,
    insert,
    select,
    update,
)

from oncemq.ledger.database.server_clock import server_moment, server_time
from oncemq.ledger.sql.column_types import Bytes, ExactText, LongText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table

ID_SIZE = 32
SILENT_AFTER: Final = timedelta(seconds=30)
"""A recording whose command has not been seen for so long has ended: workers must not fill the ledger for a command that died."""

TABLE = ledger_table(
    "recordings",
    Column("recording", String(ID_SIZE), primary_key=True),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("until", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("wanted", LongText, nullable=False),
)
"""One row for each command `oncemq record` that runs."""

RECORDED = ledger_table(
    "recorded",
    # SQLite assigns numbers only to a column whose type is INTEGER.
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("recording", String(ID_SIZE), nullable=False),
    Column("lines", Bytes, nullable=False),
    Column("lost", Integer, nullable=False),
    Index("oncemq_recorded_recording", "recording", "id"),
)
"""Compressed lines on their way from a worker to the command."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A recording that an operator has asked for.

    Args:
        recording: its id.
        consumer: the ledger scope, `app.consumer`.
        until: when it ends by itself, aware.
        wanted: what to record, as JSON.
        over: it has ended.
    """

    recording: str
    consumer: str
    until: datetime
    wanted: str
    over: bool


def begin(
    connection: Connection, recording: str, consumer: str, lasts: timedelta, wanted: str
) -> datetime | None:
    """Ask the workers of a consumer to record; returns when it ends, None if another recording of it goes on.

    What an earlier recording has left behind is removed.
    """
    for other in of(connection, [consumer]):
        if not other.over:
            return None
        remove(connection, other.recording)
    kept = select(TABLE.c.recording)
    connection.execute(delete(RECORDED).where(RECORDED.c.recording.not_in(kept)))
    now = server_time(connection)
    row = {"recording": recording, "consumer": consumer, "until": now + lasts, "seen_at": now}
    connection.execute(insert(TABLE).values(**row, wanted=wanted))
    return now + lasts


def renew(connection: Connection, recording: str) -> bool:
    """Note that the command still runs; returns whether the recording still exists."""
    now = server_moment(connection.dialect)
    alive = update(TABLE).where(TABLE.c.recording == recording).values(seen_at=now)
    return connection.execute(alive).rowcount > 0


def end(connection: Connection, recording: str) -> None:
    """Let workers stop; what they have recorded is still to be fetched."""
    connection.execute(
        update(TABLE)
        .where(TABLE.c.recording == recording)
        .values(until=server_moment(connection.dialect, timedelta(seconds=1)))
    )


def remove(connection: Connection, recording: str) -> None:
    """Remove a recording, with what was not fetched."""
    connection.execute(delete(RECORDED).where(RECORDED.c.recording == recording))
    connection.execute(delete(TABLE).where(TABLE.c.recording == recording))


def of(connection: Connection, consumers: Collection[str]) -> list[Ordered]:
    """Return the recordings of these ledger scopes."""
    c = TABLE.c
    rows = select(c.recording, c.consumer, c.until, c.wanted, c.seen_at).where(
        c.consumer.in_(sorted(consumers))
    )
    found = connection.execute(rows).all()
    if not found:
        return []
    now = server_time(connection)
    return [
        Ordered(recording, consumer, until, wanted, until <= now or seen_at <= now - SILENT_AFTER)
        for recording, consumer, until, wanted, seen_at in found
    ]


def abandoned(connection: Connection, recording: str) -> bool:
    """Return whether the command of a recording has died: it was not seen for long."""
    seen = connection.execute(select(TABLE.c.seen_at).where(TABLE.c.recording == recording)).scalar()
    return seen is not None and seen <= server_time(connection) - SILENT_AFTER


def add(connection: Connection, recording: str, lines: bytes, lost: int) -> None:
    """Store what a worker has recorded."""
    connection.execute(insert(RECORDED).values(recording=recording, lines=lines, lost=lost))


def fetch(connection: Connection, recording: str, most: int) -> list[tuple[int, bytes, int]]:
    """Return the oldest parts that are stored: number, lines, and how many arrivals were lost before them."""
    c = RECORDED.c
    rows = select(c.id, c.lines, c.lost).where(c.recording == recording).order_by(c.id).limit(most)
    return [(number, bytes(lines), lost) for number, lines, lost in connection.execute(rows)]


def forget(connection: Connection, numbers: Collection[int]) -> None:
    """Remove parts that were fetched."""
    connection.execute(delete(RECORDED).where(RECORDED.c.id.in_(sorted(numbers))))
