"""Exclusive units: at most one transaction of a consumer at a time, over all processes, until it ends."""

from sqlalchemy import Column, Connection, select, text
from sqlalchemy.dialects.mysql import insert

from oncemq.ledger.sql.column_types import MYSQL_NAMES, ExactText
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table

TABLE = ledger_table("lanes", Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True))

_ADVISORY = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")

_LOOK = text("SELECT pg_try_advisory_xact_lock_shared(hashtextextended(:name, 0))")


def enter_exclusive(connection: Connection, consumer: str) -> None:
    """Wait until this transaction is the only exclusive one of `consumer`; it stays so until it ends.

    Raises:
        DBAPIError: classified TRANSIENT if the wait exceeded the database's lock time-out, or if
            two transactions created the lane at the same moment; run again.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_ADVISORY, {"name": f"oncemq lane {consumer}"})
    elif connection.dialect.name in MYSQL_NAMES:
        _lock_row(connection, consumer)
    # SQLite: BEGIN IMMEDIATE has made every transaction exclusive.


def others_exclusive(connection: Connection, consumer: str) -> bool:
    """Return whether another transaction of `consumer` is exclusive; if none is, none begins until this one ends.

    Only PostgreSQL says so: it lets deadlocked transactions wait for a second, so the processes must learn from each
    other. The others find a deadlock at once.
    """
    if connection.dialect.name != "postgresql":
        return False
    return not connection.execute(_LOOK, {"name": f"oncemq lane {consumer}"}).scalar_one()


def _lock_row(connection: Connection, consumer: str) -> None:
    lane = select(TABLE.c.consumer).where(TABLE.c.consumer == consumer).with_for_update()
    if connection.execute(lane).first() is None:
        # The no-op update makes the loser of a race wait for the row lock instead of failing.
        create = insert(TABLE).values(consumer=consumer)
        connection.execute(create.on_duplicate_key_update(consumer=TABLE.c.consumer))
