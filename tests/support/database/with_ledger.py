"""Databases that have the ledger's tables from the beginning, for tests of what works on them: copies of one that is made once a worker.

What is said about the creation of the tables themselves is tested on empty databases.
"""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import make_url

from support.database.ledgers import ledger_engine
from support.database.shared_database import shared_database

KINDS = (
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server),
    pytest.param("mariadb", marks=pytest.mark.server),
)
"""Parameters of a fixture `database_url`, in place of the one that gives an empty database."""


def url_with_ledger(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database with the ledger's tables, of the kind that is the fixture's parameter."""
    url: str = request.getfixturevalue(f"{request.param}_with_ledger")
    return url


@pytest.fixture
def sqlite_with_ledger(tmp_path: Path, fresh: str) -> str:
    """URL of a SQLite file with the ledger's tables."""
    file = tmp_path / f"{fresh}.db"
    file.write_bytes(_file_with_ledger())
    return f"sqlite:///{file}"


@pytest.fixture(scope="session")
def postgresql_template(postgresql_url: str) -> Iterator[str]:
    """Name of a PostgreSQL database with the ledger's tables, to which nothing is connected."""
    with shared_database(postgresql_url) as url:
        _create_ledger(url)
        yield str(make_url(url).database)


@pytest.fixture
def postgresql_with_ledger(postgresql_url: str, postgresql_template: str) -> Iterator[str]:
    """URL of a copy of that database, dropped at the end."""
    with shared_database(postgresql_url, like=postgresql_template) as url:
        yield url


@pytest.fixture
def mariadb_with_ledger(mariadb_database: str) -> str:
    """URL of a MariaDB database with the ledger's tables; MariaDB copies none."""
    _create_ledger(mariadb_database)
    return mariadb_database


def _create_ledger(url: str) -> None:
    with ledger_engine(url):
        pass


@cache
def _file_with_ledger() -> bytes:
    with tempfile.TemporaryDirectory(prefix="oncemq-ledger-") as folder:
        file = Path(folder, "ledger.db")
        _create_ledger(f"sqlite:///{file}")
        return file.read_bytes()
