"""Servers that the tests of this folder may break, behind proxies; started once, because starting them costs the most."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from services import catalog
from services.errors import ServiceError
from services.postgresql import PostgreSQL
from services.rabbitmq import RabbitMQ
from storm.havoc import Field, field_of


@pytest.fixture(scope="session")
def breakable() -> Iterator[tuple[Any, Any]]:
    """A RabbitMQ and a PostgreSQL of these tests' own."""
    servers = catalog.OwnServers(catalog.FOLDER)
    with ExitStack() as teardown:
        started = []
        for kind in (RabbitMQ, PostgreSQL):
            try:
                server = servers.make(kind)
                teardown.callback(servers.remove, server)
                server.start()
            except ServiceError as error:
                pytest.fail(str(error), pytrace=False)
            started.append(server)
        yield started[0], started[1]


@pytest.fixture
def field(breakable: tuple[Any, Any], fresh: str, tmp_path: Path) -> Iterator[Field]:
    """Both servers, running and in good health, with fresh proxies and an empty database."""
    rabbitmq, postgresql = breakable
    for server in breakable:
        server.start()
    engine = create_engine(postgresql.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {fresh}"))
    engine.dispose()
    database = make_url(postgresql.url).set(database=fresh).render_as_string(hide_password=False)
    field = field_of(rabbitmq, postgresql, database, fresh, tmp_path)
    yield field
    field.close()
