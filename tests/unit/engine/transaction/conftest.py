"""Lends the tests of this folder one database of each kind, and runs each test with and without savepoints in units."""

import pytest

from support.database.databases import database, engine
from support.units import UnitBench

__all__ = ["database", "engine"]


GUARDED = 0
"""Instead of a number of items: each handler that sends statements has a savepoint of its own."""


@pytest.fixture(
    autouse=True, params=[None, 1, 2, GUARDED], ids=["whole", "savepoint-each", "savepoints", "guarded"]
)
def savepoint_every(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Return how many items of a unit are undone together; None = all."""
    every: int | None = request.param
    monkeypatch.setattr(UnitBench, "savepoint_every", every or None)
    monkeypatch.setattr(UnitBench, "guarded", every == GUARDED)
    return every
