"""Lets transactions not wait for locks, to find out which messages are blocked by another transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from oncemq.ledger.sql.column_types import MYSQL_NAMES

_SET_LOCAL = text("SET LOCAL lock_timeout = '2ms'")


@contextmanager
def only_a_moment(connection: Connection) -> Iterator[None]:
    """Limit lock waits of the begun transaction to a moment; the next transaction waits as usual.

    PostgreSQL: 2 ms. MariaDB: no wait. MySQL: a second, its minimum. SQLite: as usual, since it has no row
    locks.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_SET_LOCAL)
        yield
    elif connection.dialect.name in MYSQL_NAMES:
        with mysql_timeout(connection, 0 if getattr(connection.dialect, "is_mariadb", False) else 1):
            yield
    else:
        yield


@contextmanager
def mysql_timeout(connection: Connection, seconds: int) -> Iterator[None]:
    """Set the lock time-out of a session of MySQL or MariaDB; restored afterwards."""
    before = connection.execute(text("SELECT @@SESSION.innodb_lock_wait_timeout")).scalar_one()
    setting = text("SET SESSION innodb_lock_wait_timeout = :seconds")
    connection.execute(setting, {"seconds": seconds})
    try:
        yield
    finally:
        # The session outlives the transaction, so this setting would too.
        if not connection.invalidated:
            try:
                connection.execute(setting, {"seconds": before})
            except SQLAlchemyError:
                # After a commit nothing may raise; before a commit, the next use of the connection raises. A transaction whose
                # COMMIT was refused takes no statement any more, and must not hide why it was.
                connection.invalidate()
