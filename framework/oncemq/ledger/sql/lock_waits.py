"""Transactions that do not wait for locks: for finding out which messages somebody who stands still is holding up."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from oncemq.ledger.sql.column_types import MYSQL_NAMES

_SET_LOCAL = text("SET LOCAL lock_timeout = '2ms'")


@contextmanager
def only_a_moment(connection: Connection) -> Iterator[None]:
    """Let no statement of the transaction that has begun wait long for a lock; the next transaction waits as usual.

    PostgreSQL: 2 ms. MariaDB: not at all. MySQL: a second, which is its least. SQLite: as usual, since there
    nobody locks a row.
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
    """Let the statements of a session of MySQL or MariaDB wait so long for locks; afterwards as before."""
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
            except DBAPIError:
                # After a commit nothing may raise; before one, whatever is done next with the connection does.
                connection.invalidate()
