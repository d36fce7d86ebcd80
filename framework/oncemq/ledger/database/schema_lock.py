"""Serializes changes of the ledger's tables, which several replicas of an app may begin at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text

from oncemq.errors import LedgerError
from oncemq.ledger.database.connect import place
from oncemq.ledger.sql.column_types import MYSQL_NAMES

LONGEST_WAIT = 120
"""Seconds to wait for another process; an upgrade of large tables takes a while."""

_POSTGRESQL = text("SELECT pg_advisory_xact_lock(hashtextextended('oncemq schema', 0))")

# The lock is the server's, so its name contains the database; it may have 64 characters.
_NAME = "CONCAT('oncemq ', MD5(COALESCE(DATABASE(), '')))"


@contextmanager
def changing_schema(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction that no other process's change of the ledger's tables runs beside.

    SQLite needs no lock of ours: a transaction that may write has its lock from its beginning.

    Raises:
        LedgerError: another process did not finish its change in time.
    """
    name = engine.dialect.name
    with engine.connect() as connection:
        if name in MYSQL_NAMES:
            # Statements that change tables commit the transaction; this lock is the connection's.
            taken = connection.scalar(text(f"SELECT GET_LOCK({_NAME}, {LONGEST_WAIT})"))
            connection.rollback()
            if not taken:
                raise LedgerError(
                    f"{place(engine)}: another process has been changing the ledger's tables for {LONGEST_WAIT} s; try again"
                )
        try:
            with connection.begin():
                if name == "postgresql":
                    wait_for_schema(connection)
                yield connection
        finally:
            if name in MYSQL_NAMES:
                connection.execute(text(f"DO RELEASE_LOCK({_NAME})"))
                connection.rollback()


def wait_for_schema(connection: Connection) -> None:
    """On PostgreSQL: wait until no other transaction changes the ledger's tables, and keep others out until this one ends."""
    connection.execute(text(f"SET LOCAL lock_timeout = '{LONGEST_WAIT}s'"))
    connection.execute(_POSTGRESQL)
