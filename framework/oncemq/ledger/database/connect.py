"""Session settings of every connection, for each database."""

import socket
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event

from oncemq.common.sqlite_files import write_ahead
from oncemq.ledger.database import galera
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.retry.unique import converting

LOCK_TIMEOUT_SECONDS = 10
"""How long a statement waits for a lock before the unit is run again."""
READ_ONLY = "oncemq_read_only"
"""Execution option: this connection only reads, so SQLite's write lock is not taken."""
SILENCE_SECONDS = 15
"""After this time a connection whose peer has vanished is closed."""
_KEEPALIVE_SECONDS = 5


def glance(engine: Engine) -> Connection:
    """Return a connection for single statements that only read; on PostgreSQL without BEGIN and ROLLBACK around them."""
    return single(engine).execution_options(**{READ_ONLY: True})


def single(engine: Engine) -> Connection:
    """Return a connection for statements that are transactions of their own on PostgreSQL; elsewhere commit at the end."""
    connection = engine.connect()
    return (
        connection.execution_options(isolation_level="AUTOCOMMIT")
        if engine.dialect.name == "postgresql"
        else connection
    )


def set_up(engine: Engine) -> None:
    """Apply the settings of its database to every connection of `engine`, and convert its errors."""
    event.listen(engine, "handle_error", converting)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif engine.dialect.name == "postgresql":
        event.listen(engine, "connect", set_up_postgresql)
    elif engine.dialect.name in MYSQL_NAMES:
        event.listen(engine, "connect", _set_up_mysql)
        if "read_timeout" not in engine.url.query:
            event.listen(engine, "connect", _wait_for_statements)


def _set_up_sqlite(connection: Any, record: Any) -> None:  # noqa: ARG001 - the event's signature
    connection.isolation_level = None  # the driver begins no transaction: `_begin_sqlite` does
    connection.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_SECONDS * 1000}").fetchall()
    write_ahead(connection, LOCK_TIMEOUT_SECONDS)
    for setting in (
        "synchronous = FULL",  # WAL with NORMAL loses acknowledged commits when the power fails
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {setting}").fetchall()


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once: a transaction that reads and then writes fails with BUSY, whatever its time-out."""
    read_only = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def set_up_postgresql(connection: Any, record: Any, *, before: str = "") -> None:  # noqa: ARG001 - the event's signature
    """Set the limits of a session; `before` is executed first."""
    autocommit = connection.autocommit
    connection.autocommit = True  # a rollback would undo a SET inside its transaction
    with connection.cursor() as cursor:
        # The server must also notice a vanished client, or it keeps its locks for hours.
        cursor.execute(
            f"{before}; SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'; SET tcp_keepalives_idle = {_KEEPALIVE_SECONDS};"
            f" SET tcp_keepalives_interval = {_KEEPALIVE_SECONDS}; SET tcp_keepalives_count = 2"
        )
    connection.autocommit = autocommit


_AS_NEW = (
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();"
    " DISCARD TEMP; DISCARD SEQUENCES"
)


def clean(connection: Connection, *, thoroughly: bool = False) -> None:
    """Reset what a handler set on a connection, which is no longer in a transaction; never raises.

    Args:
        connection: about to go back to the pool.
        thoroughly: also reset the driver's connection object.
    """
    try:
        if connection.closed or connection.invalidated or _is_all_there_is(connection.engine):
            return
        pooled = connection.connection
        if thoroughly or type(pooled.driver_connection).__module__.partition(".")[0] != "psycopg":
            connection.invalidate()
            return
        # Not the driver's own: in an event loop its methods are coroutines.
        driver: Any = pooled.dbapi_connection
        driver.rollback()
        _forget_prepared(driver)
        set_up_postgresql(driver, None, before=_AS_NEW)
    except Exception:
        with suppress(Exception):
            connection.invalidate()


def _forget_prepared(driver: Any) -> None:
    """Forget statements that a handler has prepared by name; the driver counts on its own ones."""
    with driver.cursor() as cursor:
        cursor.execute("SELECT quote_ident(name) FROM pg_prepared_statements WHERE name !~ '^_pg3_'")
        for (name,) in cursor.fetchall():
            cursor.execute(f"DEALLOCATE {name}")
    driver.rollback()


def _is_all_there_is(engine: Engine) -> bool:
    """Return whether a connection is the whole database, which would be lost with it."""
    return engine.dialect.name == "sqlite" and engine.url.database in {None, "", ":memory:"}


def _set_up_mysql(connection: Any, record: Any) -> None:  # noqa: ARG001 - the event's signature
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT_SECONDS}")
        cursor.execute(
            "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION')"
        )
        galera.set_up_session(cursor)
    _notice_silence(getattr(connection, "_sock", None))


def _wait_for_statements(connection: Any, record: Any) -> None:  # noqa: ARG001 - the event's signature
    """End the limit for the login: a statement of a handler may take longer."""
    if hasattr(connection, "_read_timeout"):  # PyMySQL
        connection._read_timeout = None


def _notice_silence(sock: Any) -> None:
    """Let the kernel close a connection whose peer has vanished; PyMySQL has no option for it."""
    if not isinstance(sock, socket.socket):
        return
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_SECONDS),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", SILENCE_SECONDS * 1000),
    ):
        if hasattr(socket, name):
            with suppress(OSError):  # a Unix socket has no such options and needs none
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def place(engine: Engine) -> str:
    """Return a description of the database without secrets."""
    url = engine.url
    host = f" at {url.host}:{url.port}" if url.host and url.port else f" at {url.host}" if url.host else ""
    return f"the {url.get_backend_name()} database {url.database or ':memory:'!r}{host}"
