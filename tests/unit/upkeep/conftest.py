"""Lends the tests of this folder a ledger on each kind of database, and a clock."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from oncemq.testing.fake_clock import FakeClock
from support.database.ledgers import ledger_engine
from support.database.with_ledger import KINDS, url_with_ledger


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a database with the ledger's tables, which no test here makes for its own sake."""
    return url_with_ledger(request)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Lend an engine with a fresh ledger, once for each kind of database."""
    with ledger_engine(database_url) as engine:
        yield engine


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that is blocked."""
    return FakeClock()
