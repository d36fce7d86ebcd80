"""Lends the tests of this folder one database of each kind, and runs each test with and without savepoints in units."""

import pytest

from support.databases import database, engine
from support.units import UnitBench

__all__ = ["database", "engine"]


@pytest.fixture(autouse=True, params=[None, 1, 2], ids=["whole", "savepoint-each", "savepoints"])
def savepoint_every(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Return how many items of a unit are undone together; None = all."""
    every: int | None = request.param
    monkeypatch.setattr(UnitBench, "savepoint_every", every)
    return every
