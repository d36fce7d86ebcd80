"""Rule 20: a handler cannot tell that others share its transaction, and nobody else can afterwards.

Random programs run one message a transaction and in units; the long form is `make alone PROGRAMS=10000`.
"""

import os

import pytest
from sqlalchemy import Engine

from support.alone import outcome_of, program
from support.databases import database, engine

__all__ = ["database", "engine"]

PROGRAMS = int(os.environ.get("ONCEMQ_ALONE_PROGRAMS", "25"))
FIRST = int(os.environ.get("ONCEMQ_ALONE_SEED", "0"))


@pytest.mark.timeout(max(120, PROGRAMS))
def test_programs_leave_the_same_behind_in_units_of_any_size(engine: Engine) -> None:
    """Outcomes, tables and their order are those of one message a transaction."""
    for seed in range(FIRST, FIRST + PROGRAMS):
        messages = program(seed)
        alone = outcome_of(engine, messages, 1)
        for size in {2 + seed % 4, len(messages)}:
            assert outcome_of(engine, messages, size) == alone, f"program {seed} in units of {size}"
