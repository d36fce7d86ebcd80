"""Every ordered pair that is accepted keeps its promises through copies, disorder and failures, judged from outside."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from matrix.catalog import Pair, every_pair
from matrix.oracle import Oracle
from matrix.refusals import refusals
from matrix.tables import Base
from matrix.trial import Places, Trial
from oncemq.ledger.database.engine import make_engine
from support.database.shared_database import shared_database

PAIRS = [
    pytest.param(pair, marks=[pytest.mark.server] if pair.redis else [], id=str(pair))
    for pair in every_pair()
    if not refusals(pair)
]


def places(url: str) -> Iterator[Places]:
    """Prepare a database that all pairs share."""
    engine = make_engine(url)
    Base.metadata.create_all(engine)
    yield Places(engine, None, f"m{uuid4().hex[:8]}")
    engine.dispose()


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ],
)
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Lend a database of each kind."""
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("matrix")
        yield from places(f"sqlite:///{folder}/matrix.db")
        return
    with shared_database(request.getfixturevalue(f"{request.param}_url")) as url:
        yield from places(url)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_keeps_its_promises(pair: Pair, where: Places, request: pytest.FixtureRequest) -> None:
    """Nothing twice, lost, half, out of the promised order or left behind."""
    redis = request.getfixturevalue("redis_url") if pair.redis else None
    trial = Trial(pair, Places(where.engine, redis, where.run))
    trial.run()
    assert Oracle(trial).judge() == []
