"""One database of each kind for many tests; each of them starts with empty tables and a consumer of its own."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.processed import TABLE as PROCESSED
from oncemq.ledger.records.states import TABLE as STATES
from support.database.shared_database import drop_database
from support.effects import Base, empty


@pytest.fixture(
    scope="session",
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ],
)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine on a database with the ledger's and the tests' tables, once for each kind."""
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("database")
        yield from _prepared(f"sqlite:///{folder / 'test.db'}")
        return
    server = make_url(request.getfixturevalue(f"{request.param}_url"))
    name = f"t{uuid.uuid4().hex[:10]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield from _prepared(server.set(database=name).render_as_string(hide_password=False))
        drop_database(connection, name)
    admin.dispose()


def _prepared(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    schema.create(engine, [PROCESSED, STATES])
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(database: Engine) -> Engine:
    """The database with its tables emptied."""
    empty(database)
    return database
