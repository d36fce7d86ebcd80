"""Leases of background tasks: one process runs each task, and is replaced only after its lease has expired."""

from datetime import datetime

from sqlalchemy import Column, ColumnElement, Connection, Dialect, and_, delete, exists, or_, select, update

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
    """Take or extend the lease `name`; returns whether this owner holds it.

    The lease of another owner has expired only if it has by our clock and by the database's.

    A lease only saves work: clocks of machines differ, so tasks must tolerate running twice.
    """
    over = and_(TABLE.c.until < now, TABLE.c.until < server_moment(connection.dialect))
    free = (TABLE.c.name == name) & or_(TABLE.c.owner == owner, over)
    if connection.execute(update(TABLE).where(free).values(owner=owner, until=until)).rowcount == 1:
        return True
    row = {"name": name, "owner": owner, "until": until}
    upsert(connection, TABLE, row, {"owner": TABLE.c.owner})  # another owner's lease is not changed
    ours = TABLE.select().where(TABLE.c.name == name, TABLE.c.owner == owner)
    return connection.execute(ours).first() is not None


def taken(dialect: Dialect, name: str, owner: str, *, now: datetime) -> ColumnElement[bool]:
    """Return the condition under which another owner has the lease, as `acquire` would find it; reads without a lock."""
    lasting = or_(TABLE.c.until >= now, TABLE.c.until >= server_moment(dialect))
    return exists().where(TABLE.c.name == name, TABLE.c.owner != owner, lasting)


def end(connection: Connection, name: str, owner: str, *, at: datetime) -> None:
    """End the lease at a moment, if this owner still holds it, and keep its row, which shows when it was last used."""
    connection.execute(update(TABLE).where(TABLE.c.name == name, TABLE.c.owner == owner).values(until=at))


def release(connection: Connection, name: str, owner: str) -> None:
    """Release the lease if this owner still holds it."""
    connection.execute(delete(TABLE).where(TABLE.c.name == name, TABLE.c.owner == owner))


def holder(connection: Connection, name: str) -> str | None:
    """Return who has the lease, or had it last; None if nothing has."""
    owner: str | None = connection.scalar(select(TABLE.c.owner).where(TABLE.c.name == name))
    return owner
