"""Databases that the tests of a module share, for suites whose tests keep to scopes of their own."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError


@contextmanager
def shared_database(server: str, like: str = "") -> Iterator[str]:
    """Create a database on a server, lend its URL, drop it; it is empty, or on PostgreSQL a copy of the one that it is to be like."""
    name = f"t{uuid4().hex[:10]}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}{_copy_of(like, connection)}"))
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            drop_database(connection, name)
        engine.dispose()


def _copy_of(like: str, connection: Connection) -> str:
    """Return what makes the new database a copy, file by file where PostgreSQL has a choice: else all of it is logged, too."""
    if not like:
        return ""
    version = connection.dialect.server_version_info or (0,)
    return f" TEMPLATE {like}" + (" STRATEGY file_copy" if version >= (15,) else "")


def drop_database(connection: Connection, name: str) -> None:
    """Drop a database with whatever is still connected to it; `connection` commits each statement by itself.

    A transaction that a failed test left open would hold the statement for as long as the server lets it wait.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        return
    connected = text("SELECT id FROM information_schema.processlist WHERE db = :name")
    for number in connection.scalars(connected, {"name": name}).all():
        with suppress(DBAPIError):  # it has ended by itself
            connection.execute(text(f"KILL {number}"))
    connection.execute(text("SET lock_wait_timeout = 30"))
    connection.execute(text(f"DROP DATABASE {name}"))
