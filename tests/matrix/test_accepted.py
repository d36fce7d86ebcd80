"""Every ordered pair that is accepted keeps its promises through copies, disorder and failures, judged from outside."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from matrix.catalog import Pair, every_pair
from matrix.oracle import Oracle
from matrix.refusals import refusals
from matrix.tables import Base
from matrix.trial import Places, Trial
from oncemq.ledger.database.engine import make_engine
from support.database.shared_database import shared_database

DATABASES = ("sqlite", "postgresql", "mariadb")
ACCEPTED = [pair for pair in every_pair() if not refusals(pair)]
IN_TURN = {pair: DATABASES[number % len(DATABASES)] for number, pair in enumerate(ACCEPTED)}
"""A run tries each pair on one database; `make matrix` tries each on all of them."""


def trials() -> Iterator[Any]:
    """Yield each pair on each database, database by database."""
    for database, pair in product(DATABASES, ACCEPTED):
        marks = [pytest.mark.server] if pair.redis or database != "sqlite" else []
        if IN_TURN[pair] != database:
            marks.append(pytest.mark.long_form("ONCEMQ_MATRIX=whole"))
        yield pytest.param(database, pair, marks=marks, id=f"{database}-{pair}")


def places(url: str) -> Iterator[Places]:
    """Prepare a database that all pairs share."""
    engine = make_engine(url)
    Base.metadata.create_all(engine)
    yield Places(engine, None, f"m{uuid4().hex[:8]}")
    engine.dispose()


@pytest.fixture(scope="module")
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Lend a database of each kind."""
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("matrix")
        yield from places(f"sqlite:///{folder}/matrix.db")
        return
    with shared_database(request.getfixturevalue(f"{request.param}_url")) as url:
        yield from places(url)


@pytest.mark.parametrize(("where", "pair"), list(trials()), indirect=["where"])
def test_a_pair_keeps_its_promises(pair: Pair, where: Places, request: pytest.FixtureRequest) -> None:
    """Nothing twice, lost, half, out of the promised order or left behind."""
    redis = request.getfixturevalue("redis_url") if pair.redis else None
    trial = Trial(pair, Places(where.engine, redis, where.run))
    trial.run()
    assert Oracle(trial).judge() == []


@pytest.mark.parametrize("database", DATABASES)
def test_each_strategy_is_tried_on_each_database(database: str) -> None:
    """A pair is tried on one of them in turn, and yet none leaves out a strategy that any pair has."""
    tried = {
        name for pair, where in IN_TURN.items() if where == database for name in (pair.first, pair.second)
    }
    assert tried == {name for pair in ACCEPTED for name in (pair.first, pair.second)}
