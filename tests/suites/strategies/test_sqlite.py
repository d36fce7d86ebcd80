"""Every chain of strategies passes the strategy suite on SQLite."""

import pytest

from oncemq.testing.strategy_suite import ChainSpec, DirectStrategySuite, StrategySuite
from oncemq.testing.strategy_suite.duplicates import Duplicates
from oncemq.testing.strategy_suite.failures import Failures
from support.chains import CHAINS, DIRECT, ON_ROWS, PAIRS

ALL = {**CHAINS, **ON_ROWS}


class TestStrategiesSQLite(StrategySuite):
    """Each test has a scope of its own."""

    @pytest.fixture(params=ALL.values(), ids=ALL.keys())
    def chain(self, request: pytest.FixtureRequest) -> ChainSpec:
        """Return one chain after the other."""
        chain: ChainSpec = request.param
        return chain

    @pytest.fixture
    def url(self, sqlite_with_ledger: str) -> str:
        """Return a file of this test's own."""
        return sqlite_with_ledger


class TestPairsSQLite(Duplicates, Failures):
    """Two strategies of a list do not disturb each other, whichever comes first."""

    @pytest.fixture(params=PAIRS.values(), ids=PAIRS.keys())
    def chain(self, request: pytest.FixtureRequest) -> ChainSpec:
        """Return one pair after the other."""
        chain: ChainSpec = request.param
        return chain

    @pytest.fixture
    def url(self, sqlite_with_ledger: str) -> str:
        """Return a file of this test's own."""
        return sqlite_with_ledger


class TestDirectStrategiesSQLite(DirectStrategySuite):
    """Effects outside the database, which keeps the claims."""

    @pytest.fixture(params=DIRECT.values(), ids=DIRECT.keys())
    def chain(self, request: pytest.FixtureRequest) -> ChainSpec:
        """Return one chain after the other."""
        chain: ChainSpec = request.param
        return chain

    @pytest.fixture
    def url(self, sqlite_with_ledger: str) -> str:
        """Return a file of this test's own."""
        return sqlite_with_ledger
