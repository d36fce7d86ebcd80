"""Messages that failed for good, and for which the consumer's `on_dead` function has taken effect: one row for each.

The row is written in the function's own transaction, together with the message's record in `oncemq_processed`.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from sqlalchemy import Column, Connection, Index, String, delete, insert, select

from oncemq.ledger.records import processed
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

_CODE_SIZE = 64

TABLE = ledger_table(
    "final_failures",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("identity", ExactText(KEY_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("code", String(_CODE_SIZE), nullable=False),
    Column("reason", LongText, nullable=False),
    Column("at", Moment, nullable=False),
    Index("oncemq_final_failures_age", "consumer", "at"),
)
_T = TABLE.c


def add(
    connection: Connection, consumer: str, identity: str, key: str, code: str, reason: str, at: datetime
) -> None:
    """Store why a message failed."""
    row = {"consumer": consumer, "identity": identity, "key": key, "code": code[:_CODE_SIZE]}
    connection.execute(insert(TABLE).values(**row, reason=reason, at=at))


def load(connection: Connection, consumer: str, identities: Iterable[str]) -> Mapping[str, tuple[str, str]]:
    """Return code and reason by identity, of those that have a row."""
    found = select(_T.identity, _T.code, _T.reason).where(
        _T.consumer == consumer, _T.identity.in_(sorted(set(identities)))
    )
    return {row.identity: (row.code, row.reason) for row in connection.execute(found)}


def forget(connection: Connection, consumer: str, identities: Collection[str]) -> int:
    """Delete the rows of messages that shall run again, and their records; returns how many there were."""
    wanted = sorted(set(identities))
    found = sorted(load(connection, consumer, wanted))
    for table in (TABLE, processed.TABLE):
        ours = (table.c.consumer == consumer) & table.c.identity.in_(found)
        if found:
            connection.execute(delete(table).where(ours))
    return len(found)


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the rows of a key, of every consumer, oldest first; reads the whole table."""
    found = select(TABLE).where(_T.key == key).order_by(_T.at)
    return [dict(row) for row in connection.execute(found).mappings()]
