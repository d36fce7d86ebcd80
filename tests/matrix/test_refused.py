"""Every ordered pair that cannot be safe is refused, in words that say what is wrong and what to write."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from matrix.catalog import CATALOG, Pair, every_pair
from matrix.refusals import refusals
from matrix.tables import Base
from matrix.trial import Places, declare
from oncemq.errors import ConfigError
from oncemq.ledger.database.engine import make_engine
from oncemq.registry import STRATEGIES, Registry

PAIRS = [pair for pair in every_pair() if refusals(pair)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend a database with the matrix's tables."""
    engine = make_engine(f"sqlite:///{tmp_path_factory.mktemp('matrix')}/matrix.db")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_pair_that_cannot_be_safe_is_refused(pair: Pair, engine: Engine) -> None:
    """Every reason is told, with its way out."""
    places = Places(engine, "redis://127.0.0.1:1", "refused")
    with pytest.raises(ConfigError) as refused:
        declare(pair, places, lambda body: None, lambda envelope: None).check()
    told = str(refused.value)
    for text, advice in refusals(pair):
        assert f"{text} – {advice}" in told


def test_the_catalog_knows_every_strategy() -> None:
    """A strategy that no one has entered would be in no pair."""
    installed: Registry[object] = Registry(STRATEGIES, "strategy")
    assert set(CATALOG) == set(installed.names())
