"""Current state of each entity, for consumers whose own tables do not hold it."""

from sqlalchemy import Column, Connection, Index, select

from oncemq.ledger.sql.column_types import ExactText, Moment, Token
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

TABLE = ledger_table(
    "states",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), primary_key=True),
    Column("state", ExactText(CONSUMER_SIZE), nullable=False),
    Column("changed_at", Moment, nullable=False),
    Column("owner", Token),  # the inserting owner, if the database cannot return which rows were new
    Index("oncemq_states_age", "consumer", "changed_at"),
)


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the states of a key, of every consumer."""
    columns = [column for column in TABLE.c if column.name != "owner"]
    found = select(*columns).where(TABLE.c.key == key).order_by(TABLE.c.consumer)
    return [dict(row) for row in connection.execute(found).mappings()]
