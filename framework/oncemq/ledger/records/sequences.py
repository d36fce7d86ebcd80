"""Last applied number of each key: one row for each consumer and key."""

from sqlalchemy import Column, Connection, Index, select

from oncemq.ledger.sql.column_types import ExactText, Moment, Token
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

NUMBER_SIZE = 20

TABLE = ledger_table(
    "sequences",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), primary_key=True),
    Column("last", ExactText(NUMBER_SIZE), nullable=False),
    Column("moved_at", Moment, nullable=False),
    Column("owner", Token),  # the inserting owner, if the database cannot return which rows were new
    Index("oncemq_sequences_age", "consumer", "moved_at"),
)


def last_of(connection: Connection, consumer: str, key: str) -> int | None:
    """Return the last number of a key that a consumer has applied; None = none yet."""
    found = select(TABLE.c.last).where(TABLE.c.consumer == consumer, TABLE.c.key == key)
    last = connection.execute(found).scalar()
    return int(last) if last else None
