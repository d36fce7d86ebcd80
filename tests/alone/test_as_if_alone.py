"""Rule 20: a handler cannot tell that others share its transaction, and no reader of the tables can afterwards.

Random programs run one message a transaction and in units; the long form is `make alone PROGRAMS=10000`.
"""

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from alone.compare import differences
from alone.world import world
from support.database.databases import database

__all__ = ["database"]

PROGRAMS = int(os.environ.get("ONCEMQ_ALONE_PROGRAMS", "12"))
FIRST = int(os.environ.get("ONCEMQ_ALONE_SEED", "0"))
ENOUGH = 10
"""So many programs that differ are shown; the long form does not end with the first one."""


@pytest.fixture(scope="module")
def engine(database: Engine) -> Iterator[Engine]:
    """Return the database with the programs' tables."""
    with world(database):
        yield database


@pytest.mark.timeout(max(120, PROGRAMS))
def test_programs_leave_the_same_behind_in_units_of_any_size(engine: Engine) -> None:
    """Outcomes, dead letters, published messages, tables and their order are those of one message a transaction."""
    told: list[str] = []
    for seed in range(FIRST, FIRST + PROGRAMS):
        told += differences(engine, seed)
        if len(told) >= ENOUGH:
            break
    assert not told
