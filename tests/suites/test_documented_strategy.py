"""The strategy of docs/writing-a-strategy.md passes the suite on the databases that it knows."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq.testing.strategy_suite import ChainSpec, StrategySuite
from support.database.shared_database import shared_database

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "applied_once.py"


@pytest.fixture(scope="module")
def database(postgresql_url: str) -> Iterator[str]:
    """Lend one database to all tests of this file."""
    with shared_database(postgresql_url) as url:
        yield url


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the example with its entry point, so that the processes that a test starts find it, too."""
    site = tmp_path / "site"
    about = site / "documented-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(EXAMPLE, site)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: documented\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[oncemq.strategies]\napplied_once = applied_once:AppliedOnce\n")
    monkeypatch.syspath_prepend(str(site))


class TestDocumentedStrategy(StrategySuite):
    """As a reader would test it."""

    @pytest.fixture
    def chain(self) -> ChainSpec:
        """Return the strategy alone."""
        return ChainSpec([("applied_once", {})])

    @pytest.fixture(params=["sqlite", "postgresql"])
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        """Return a database that the strategy knows."""
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path}/suite.db"
        url: str = request.getfixturevalue("database")
        return url
