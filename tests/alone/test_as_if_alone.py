"""Rule 20: a handler cannot tell that others share its transaction, and no reader of the tables can afterwards.

Random programs run one message a transaction and in units; the long form is `make alone PROGRAMS=10000`.
"""

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from alone.programs import Manner, Program, outcome_of, program
from alone.world import world
from support.databases import database

__all__ = ["database"]

PROGRAMS = int(os.environ.get("ONCEMQ_ALONE_PROGRAMS", "25"))
FIRST = int(os.environ.get("ONCEMQ_ALONE_SEED", "0"))


@pytest.fixture(scope="module")
def engine(database: Engine) -> Iterator[Engine]:
    """Return the database with the programs' tables."""
    with world(database):
        yield database


def manners(seed: int, messages: int) -> list[Manner]:
    """Return in which ways a program is run, beside one message a transaction."""
    sizes = {2 + seed % 4, messages} if messages < 40 else {messages}
    return [Manner(size, (None, None, 3)[(seed + size) % 3], guarded=seed % 2 == 1) for size in sizes]


@pytest.mark.timeout(max(120, PROGRAMS))
def test_programs_leave_the_same_behind_in_units_of_any_size(engine: Engine) -> None:
    """Outcomes, dead letters, published messages, tables and their order are those of one message a transaction."""
    for seed in range(FIRST, FIRST + PROGRAMS):
        chosen = program(seed)
        alone = outcome_of(engine, chosen, Manner(1))
        for manner in manners(seed, len(chosen.messages)):
            assert outcome_of(engine, chosen, manner) == alone, f"program {seed} as {manner}"
        if chosen.poison:
            assert without(chosen, alone) == outcome_of(engine, chosen.healthy, Manner(1)), f"program {seed}"


def without(chosen: Program, found: dict[str, dict[str, list[str]]]) -> dict[str, object]:
    """Return what was found, without the outcomes of the failing neighbours."""
    outcomes = {name: went for name, went in found["outcomes"].items() if name not in chosen.poison}
    return {**found, "outcomes": outcomes}
