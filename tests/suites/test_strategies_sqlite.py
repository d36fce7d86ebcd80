"""Every chain of strategies passes the strategy suite on SQLite."""

from pathlib import Path

import pytest

from oncemq.testing.strategy_suite import ChainSpec, StrategySuite
from support.chains import CHAINS


class TestStrategiesSQLite(StrategySuite):
    """Each test has a scope of its own."""

    @pytest.fixture(params=CHAINS.values(), ids=CHAINS.keys())
    def chain(self, request: pytest.FixtureRequest) -> ChainSpec:
        """Return one chain after the other."""
        chain: ChainSpec = request.param
        return chain

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        """Return a file of this test's own."""
        return f"sqlite:///{tmp_path}/suite.db"
