"""Every chain of strategies passes the strategy suite on PostgreSQL."""

from collections.abc import Iterator

import pytest

from oncemq.testing.strategy_suite import ChainSpec, DirectStrategySuite, StrategySuite
from support.chains import CHAINS, DIRECT, ON_ROWS
from support.database.shared_database import shared_database

ALL = {**CHAINS, **ON_ROWS}


@pytest.fixture(scope="module")
def database(postgresql_url: str) -> Iterator[str]:
    """Lend one database to all tests of this file."""
    with shared_database(postgresql_url) as url:
        yield url


class TestStrategiesPostgreSQL(StrategySuite):
    """Each test has a scope of its own."""

    @pytest.fixture(params=ALL.values(), ids=ALL.keys())
    def chain(self, request: pytest.FixtureRequest) -> ChainSpec:
        """Return one chain after the other."""
        chain: ChainSpec = request.param
        return chain

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that these tests share."""
        return database


class TestDirectStrategiesPostgreSQL(DirectStrategySuite):
    """Effects outside the database, which keeps the claims."""

    @pytest.fixture(params=DIRECT.values(), ids=DIRECT.keys())
    def chain(self, request: pytest.FixtureRequest) -> ChainSpec:
        """Return one chain after the other."""
        chain: ChainSpec = request.param
        return chain

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that these tests share."""
        return database
