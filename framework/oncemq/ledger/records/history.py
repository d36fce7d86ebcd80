"""History of messages with another outcome than applied: which message, its outcome, when and why."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, Connection, Identity, Index, Integer, String, insert, select, text

from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

TABLE = ledger_table(
    "history",
    # SQLite assigns numbers only to a column whose type is INTEGER.
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("topic", ExactText(CONSUMER_SIZE), nullable=False),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("identity", ExactText(KEY_SIZE), nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("reason", LongText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Moment, nullable=False),
    Index("oncemq_history_key", "key"),
    Index("oncemq_history_age", "consumer", "at"),
)

MAX_REASON = 2000
"""Length limit of a stored reason."""

_COLUMNS = "consumer text, topic text, key text, identity text, outcome text, reason text, attempt integer, at timestamptz"
_AS_JSON = text(
    f"INSERT INTO {TABLE.name} (consumer, topic, key, identity, outcome, reason, attempt, at)"  # noqa: S608 - our own names
    f" SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r({_COLUMNS})"
)
"""All rows as one value, for PostgreSQL: a third of the cost of a statement for each row, half of that of arrays."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One outcome to be kept.

    Args:
        consumer: the ledger scope, `app.consumer`.
        topic: the topic's name in the app.
        key: the business key; empty if the message had none.
        identity: the canonical identity; empty if the message had none.
        outcome: a verdict's outcome, such as `stale`, or a dead letter's reason, such as `undecodable`.
        reason: text for people.
        attempt: the attempt's number.
        at: when, aware.
    """

    consumer: str
    topic: str
    key: str
    identity: str
    outcome: str
    reason: str
    attempt: int
    at: datetime


def add(connection: Connection, rows: Sequence[HistoryRow]) -> None:
    """Store `rows`; characters that a database cannot store are replaced, since history must never fail a unit."""
    if not rows:
        return
    kept = [_storable(row) for row in rows]
    if connection.dialect.name == "postgresql":
        connection.execute(_AS_JSON, {"rows": json.dumps(kept, default=datetime.isoformat)})
    else:
        connection.execute(insert(TABLE), kept)


def of_key(connection: Connection, key: str) -> list[HistoryRow]:
    """Return the history of a key, of every consumer, oldest first."""
    columns = [column for column in TABLE.c if column.name != "id"]
    found = select(*columns).where(TABLE.c.key == key).order_by(TABLE.c.at, TABLE.c.id)
    return [HistoryRow(*row) for row in connection.execute(found)]


def _storable(row: HistoryRow) -> dict[str, object]:
    return {
        "consumer": row.consumer,
        "topic": storable(row.topic, CONSUMER_SIZE),
        "key": storable(row.key, KEY_SIZE),
        "identity": storable(row.identity, KEY_SIZE),
        "outcome": row.outcome,
        "reason": storable(row.reason, MAX_REASON),
        "attempt": row.attempt,
        "at": row.at,
    }
