"""Random cases against an oracle: duplicates, disorder, faults, lost commits, connections and acknowledgements."""

import os

import pytest
from sqlalchemy import Engine

from support.model.random_case import Case, Oracle

SEEDS = int(os.environ.get("ONCEMQ_TEST_SEEDS", "21"))
FIRST = int(os.environ.get("ONCEMQ_TEST_FIRST_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_every_message_takes_effect_once(engine: Engine, seed: int) -> None:
    """Nothing twice, nothing lost, nothing left behind, no innocent charged, each key in order."""
    case = Case(seed, engine)
    case.run()
    assert Oracle(case).judge() == [], repr(case)
