"""Databases that the tests of a module share, for suites whose tests keep to scopes of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text


@contextmanager
def shared_database(server: str) -> Iterator[str]:
    """Create an empty database on a server, lend its URL, drop it."""
    name = f"t{uuid4().hex[:10]}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        force = " WITH (FORCE)" if engine.dialect.name == "postgresql" else ""
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name}{force}"))
        engine.dispose()
