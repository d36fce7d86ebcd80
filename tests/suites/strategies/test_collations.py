"""Chains on the user's own table take effect once, whatever the table's key column holds equal.

With ONCEMQ_COLLATIONS=whole they also pass the whole strategy suite on each kind of column; else a part of it.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import select

from oncemq.contracts.verdict import Outcome
from oncemq.testing.strategy_suite import ChainSpec, StrategySuite
from oncemq.testing.strategy_suite.base import SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.duplicates import Duplicates
from support.chains import (
    MACHINE_ON_ROWS,
    OPTIMISTIC,
    OPTIMISTIC_PARKING,
    PESSIMISTIC,
    PRECONDITION,
    UNIQUE,
)
from support.database.collations import KINDS, Column, Kind, database_of

BY_CONSTRAINT = ("unique_key", {"table": "$TABLE", "columns": {"entity": "body.id"}})

CHAINS = {
    "unique_key-table": ChainSpec([BY_CONSTRAINT], entity=True, waits=False),
    "state_machine": ChainSpec([MACHINE_ON_ROWS], late_is_stale=True, entity=True),
    "optimistic_lock": ChainSpec([OPTIMISTIC], late_is_stale=True, entity=True, waits=False),
    "pessimistic_lock+unique_key": ChainSpec([PESSIMISTIC, UNIQUE], entity=True),
    "unique_key+precondition": ChainSpec([UNIQUE, PRECONDITION], entity=True),
}

WHOLE_CHAINS = {
    **{name: chain for name, chain in CHAINS.items() if name != "unique_key-table"},
    "optimistic_lock-parking": ChainSpec([OPTIMISTIC_PARKING], entity=True, parks=True, waits=False),
}
"""Not the one whose constraint lets each entity have one message, as the suite's next messages of a key are no copies."""


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind.ignores], ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return one kind of column after the other."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def database(
    kind: Kind, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Lend one database to all tests of a kind."""
    with database_of(kind, request, tmp_path_factory) as url:
        yield url


class TestCollations(SuitePart):
    """Each test has a scope of its own."""

    @pytest.fixture(params=CHAINS.values(), ids=CHAINS.keys())
    def chain(self, request: pytest.FixtureRequest, kind: Kind) -> ChainSpec:
        """Return one chain after the other."""
        return replace(request.param, key_type=Column(kind.ddl))

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that the tests of a kind share."""
        return database

    test_a_second_copy_has_no_effect = Duplicates.test_a_second_copy_has_no_effect
    test_copies_in_one_unit_have_one_effect = Duplicates.test_copies_in_one_unit_have_one_effect

    def test_another_spelling_of_a_row_is_a_conflict(self, bench: Bench, kind: Kind) -> None:
        """It names both spellings; nothing is swallowed, no row is moved, and the row's own messages go on."""
        assert bench.deliver(message("aB3x", 1)) == [Outcome.PROCEED]
        before = rows(bench)
        for other in others(kind):
            [verdict] = bench.verdicts(message(other, 1))
            assert verdict.outcome is Outcome.CONFLICT, other
            assert repr(other) in verdict.reason
            assert "'aB3x'" in verdict.reason
        assert rows(bench) == before
        assert bench.deliver(message("aB3x", 1)) == [Outcome.DUPLICATE]
        assert bench.effects() == [("aB3x", 1)]

    def test_two_spellings_in_one_unit_are_seen(self, bench: Bench, kind: Kind) -> None:
        """The first one runs; the second one is decided when the first one's row is there."""
        unit = [message(spelling, 1) for spelling in ("aB3x", *others(kind))]
        assert bench.deliver(*unit)[0] is Outcome.PROCEED
        assert bench.deliver(*unit) == [Outcome.DUPLICATE, *[Outcome.CONFLICT] * (len(unit) - 1)]
        assert bench.effects() == [("aB3x", 1)]

    def test_what_fixed_width_would_cut_is_refused(self, bench: Bench, kind: Kind) -> None:
        """A blank at the end of a value is not kept, so it cannot tell two values apart."""
        expected = Outcome.REJECT if kind.padded else Outcome.PROCEED
        assert bench.deliver(message("trail ", 1)) == [expected]


@pytest.mark.long_form("ONCEMQ_COLLATIONS=whole")
class TestWholeSuiteOnCollations(StrategySuite):
    """Everything that holds for a column that compares character by character holds for the others."""

    @pytest.fixture(params=WHOLE_CHAINS.values(), ids=WHOLE_CHAINS)
    def chain(self, request: pytest.FixtureRequest, kind: Kind) -> ChainSpec:
        """Return one chain after the other."""
        return replace(request.param, key_type=Column(kind.ddl))

    @pytest.fixture
    def url(self, database: str) -> str:
        """Return the database that the tests of a kind share."""
        return database

    # Two spellings that the column takes for one are a Conflict there, by design.
    test_keys_are_compared_byte_by_byte = TestCollations.test_another_spelling_of_a_row_is_a_conflict  # type: ignore[assignment]


def others(kind: Kind) -> list[str]:
    """Return spellings that a column of this kind takes for `aB3x`."""
    found = []
    if "case" in kind.ignores:
        found.append("Ab3X")
    if "accents" in kind.ignores and "case" in kind.ignores:
        found.append("áB3x")
    if "trailing blanks" in kind.ignores and not kind.padded:
        found.append("aB3x ")
    return found


def rows(bench: Bench) -> list[tuple[object, ...]]:
    """Return the entities' rows."""
    assert bench.entities is not None
    with bench.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(bench.entities))]
