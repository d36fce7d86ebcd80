"""Fixtures of the tests of generations: a PostgreSQL database of its own for each test."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.generations import registry


@pytest.fixture
def ledger(postgresql_database: str) -> Iterator[Engine]:
    """Lend a fresh ledger with the table of generations."""
    engine = make_engine(postgresql_database)
    schema.create(engine, [registry.TABLE])
    yield engine
    engine.dispose()
