"""A lock before what decides passes the strategy suite: on PostgreSQL, in part on SQLite, and with effects outside."""

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oncemq.testing.processes import processes
from oncemq.testing.strategy_suite import ChainSpec
from oncemq.testing.strategy_suite.base import MakeBench, SuitePart
from oncemq.testing.strategy_suite.bench import message
from oncemq.testing.strategy_suite.concurrency import Concurrency
from oncemq.testing.strategy_suite.crashes import deliver_and_die
from oncemq.testing.strategy_suite.duplicates import Duplicates
from oncemq.testing.strategy_suite.failures import Failures
from support.chains import LOCKED, LOCKED_DIRECT, under_locks_of
from support.database.shared_database import shared_database


@pytest.fixture(scope="module")
def database(postgresql_url: str) -> Iterator[str]:
    """Lend one database to all tests of this file."""
    with shared_database(postgresql_url) as url:
        yield url


class TestLocksPostgreSQL(Duplicates, Failures, Concurrency):
    """Each test has a scope and locks of its own."""

    @pytest.fixture(params=LOCKED.values(), ids=LOCKED.keys())
    def chain(self, request: pytest.FixtureRequest, redis_url: str, fresh: str) -> ChainSpec:
        """Return one chain after the other."""
        return replace(under_locks_of(request.param, fresh), redis=redis_url)

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that these tests share."""
        return database


class TestLocksSQLite(Duplicates, Failures):
    """Each test has a database and locks of its own."""

    @pytest.fixture
    def chain(self, redis_url: str, fresh: str) -> ChainSpec:
        """Return the longest chain."""
        chain = LOCKED["redis_lock+unique_key+state_machine"]
        return replace(under_locks_of(chain, fresh), redis=redis_url)

    @pytest.fixture
    def url(self, sqlite_database: str) -> str:
        """Return a new database."""
        return sqlite_database


class TestLocksDirect(Duplicates, Failures, Concurrency):
    """Effects outside the database, which keeps the claims."""

    @pytest.fixture(params=LOCKED_DIRECT.values(), ids=LOCKED_DIRECT.keys())
    def chain(self, request: pytest.FixtureRequest, redis_url: str, fresh: str) -> ChainSpec:
        """Return one chain after the other."""
        return replace(under_locks_of(request.param, fresh), redis=redis_url)

    @pytest.fixture
    def url(self, sqlite_database: str) -> str:
        """Return a new database."""
        return sqlite_database


class TestLocksOfTheDead(SuitePart):
    """SIGKILL of a holder: its messages come again, and wait until its lease has ended."""

    @pytest.fixture
    def chain(self, redis_url: str, fresh: str) -> ChainSpec:
        """Return a chain with a short lease: what a killed holder leaves is soon free."""
        chain = under_locks_of(LOCKED["redis_lock+unique_key+state_machine"], fresh, lease="2s")
        return replace(chain, redis=redis_url)

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that these tests share."""
        return database

    @pytest.mark.parametrize("point", ["handled", "committed"])
    def test_a_crash_neither_loses_nor_doubles(
        self, make_bench: MakeBench, chain: ChainSpec, url: str, scope: str, point: str
    ) -> None:
        """Before the commit nothing is there, after it everything; delivered again: one effect each."""
        bench = make_bench()
        victim = processes().Process(target=deliver_and_die, args=(url, chain, scope, point))
        victim.start()
        victim.join(60)
        assert victim.exitcode == -signal.SIGKILL
        assert len(bench.effects()) == (2 if point == "committed" else 0)
        bench.deliver_all(message("a", 1), message("b", 1))
        assert sorted(bench.effects()) == [("a", 1), ("b", 1)]
