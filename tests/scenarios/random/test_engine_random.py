"""Random cases against an oracle: duplicates, disorder, faults, lost commits, connections and acknowledgements."""

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Engine

from support.model.random_case import Case, Oracle

SEEDS = int(os.environ.get("ONCEMQ_TEST_SEEDS", "21"))
FIRST = int(os.environ.get("ONCEMQ_TEST_FIRST_SEED", "0"))
DATABASES = ("sqlite", "postgresql", "mariadb")


def cases() -> Iterator[Any]:
    """Yield each seed on each database; a run plays it on one of them in turn, and on all where the number of seeds is given."""
    for seed, (turn, database) in product(range(FIRST, FIRST + SEEDS), enumerate(DATABASES)):
        marks = [] if database == "sqlite" else [pytest.mark.server]
        if seed % len(DATABASES) != turn:
            marks.append(pytest.mark.long_form("ONCEMQ_TEST_SEEDS"))
        yield pytest.param(database, seed, marks=marks)


@pytest.mark.parametrize(("database", "seed"), list(cases()), indirect=["database"])
def test_every_message_takes_effect_once(engine: Engine, seed: int) -> None:
    """Nothing twice, nothing lost, nothing left behind, no innocent charged, each key in order."""
    case = Case(seed, engine)
    case.run()
    assert Oracle(case).judge() == [], repr(case)
