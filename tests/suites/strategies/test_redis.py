"""Every chain with Redis passes the strategy suite: on a server with PostgreSQL, on a cluster with SQLite."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from oncemq.testing.strategy_suite import ChainSpec, DirectStrategySuite, StrategySuite
from oncemq.testing.strategy_suite.duplicates import Duplicates
from oncemq.testing.strategy_suite.failures import Failures
from support.chains import FLAGS, TIERS
from support.database.shared_database import shared_database


@pytest.fixture(scope="module")
def database(postgresql_url: str) -> Iterator[str]:
    """Lend one database to all tests of this file."""
    with shared_database(postgresql_url) as url:
        yield url


class TestStrategiesRedis(StrategySuite):
    """Each test has a scope of its own."""

    @pytest.fixture(params=[TIERS["tiered-full"]], ids=["tiered-full"])
    def chain(self, request: pytest.FixtureRequest, redis_url: str) -> ChainSpec:
        """Return the fullest chain."""
        return replace(request.param, redis=redis_url)

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that these tests share."""
        return database


class TestStrategiesRedisCluster(Duplicates, Failures):
    """Each test has a scope and a database of its own."""

    @pytest.fixture(params=["tiered", "state_machine+tiered"])
    def chain(self, request: pytest.FixtureRequest, redis_cluster_url: str) -> ChainSpec:
        """Return one chain after the other."""
        return replace(TIERS[request.param], redis=redis_cluster_url)

    @pytest.fixture
    def url(self, sqlite_with_ledger: str) -> str:
        """Return a new database."""
        return sqlite_with_ledger


class TestFlags(DirectStrategySuite):
    """Effects outside the database, with flags in a cluster; the database shows the effects alone."""

    @pytest.fixture(params=FLAGS.values(), ids=FLAGS.keys())
    def chain(self, request: pytest.FixtureRequest, redis_cluster_url: str) -> ChainSpec:
        """Return the chain."""
        return replace(request.param, redis=redis_cluster_url)

    @pytest.fixture
    def url(self, sqlite_with_ledger: str) -> str:
        """Return a new database."""
        return sqlite_with_ledger
