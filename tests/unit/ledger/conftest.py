"""Fixtures of the ledger's tests."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Lend an engine on a database with a fresh ledger, once for each kind of database."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()
