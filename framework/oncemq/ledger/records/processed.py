"""Messages that have taken effect: one row for each consumer and identity."""

from sqlalchemy import Column, Connection, Index, select

from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, Token
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

FINGERPRINT_SIZE = 64

TABLE = ledger_table(
    "processed",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("identity", ExactText(KEY_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("processed_at", Moment, nullable=False),
    Column("fingerprint", ExactText(FINGERPRINT_SIZE)),
    Column("result", LongText),
    Column("owner", Token),  # the inserting owner, if the database cannot return which rows were new
    Index("oncemq_processed_age", "consumer", "processed_at"),
)


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the applied messages of a key, of every consumer, oldest first.

    Reads the whole table: an index for an occasional query would cost every message.
    """
    columns = [column for column in TABLE.c if column.name != "owner"]
    found = select(*columns).where(TABLE.c.key == key).order_by(TABLE.c.processed_at)
    return [dict(row) for row in connection.execute(found).mappings()]
