"""Leases of background tasks: one process does each, and is replaced only when its lease has ended."""

from datetime import datetime

from sqlalchemy import Column, Connection, and_, delete, or_, update

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.sql.column_types import ExactText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

TABLE = ledger_table(
    "leases",
    Column("name", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("owner", ExactText(64), nullable=False),
    Column("until", Moment, nullable=False),
)


def acquire(connection: Connection, name: str, owner: str, *, now: datetime, until: datetime) -> bool:
    """Take or extend the lease `name`; returns whether it is ours.

    Another one's lease is over when it is by our clock and by the database's.

    A lease saves work and decides nothing: machines' clocks differ, so tasks must bear running twice.
    """
    over = and_(TABLE.c.until < now, TABLE.c.until < server_moment(connection.dialect))
    free = (TABLE.c.name == name) & or_(TABLE.c.owner == owner, over)
    if connection.execute(update(TABLE).where(free).values(owner=owner, until=until)).rowcount == 1:
        return True
    row = {"name": name, "owner": owner, "until": until}
    upsert(connection, TABLE, row, {"owner": TABLE.c.owner})  # somebody else's lease stays his
    ours = TABLE.select().where(TABLE.c.name == name, TABLE.c.owner == owner)
    return connection.execute(ours).first() is not None


def end(connection: Connection, name: str, owner: str, *, at: datetime) -> None:
    """Let the lease end at a moment, if it is still ours, and keep its row: others can tell until when it was used."""
    connection.execute(update(TABLE).where(TABLE.c.name == name, TABLE.c.owner == owner).values(until=at))


def release(connection: Connection, name: str, owner: str) -> None:
    """Give the lease back if it is still ours."""
    connection.execute(delete(TABLE).where(TABLE.c.name == name, TABLE.c.owner == owner))
