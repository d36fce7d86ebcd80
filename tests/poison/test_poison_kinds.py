"""The same for every kind of handler: what it raises is caught elsewhere where it has sent statements, and in direct units.

Small here, where each way has its turn with one of the kinds; `make poison` runs all with all.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import Adapter, AdapterScope
from oncemq.observe import logs
from oncemq_adapters.embedded import EmbeddedAdapter
from poison.crowd import Crowd, Kind
from poison.ways import PYTHON, WITHOUT_SESSION
from support.database.databases import database, engine

__all__ = ["database", "engine"]

WHOLE = bool(os.environ.get("ONCEMQ_POISON"))
NEIGHBOURS = 300 if WHOLE else 12
CROWDS = 12 if WHOLE else 1
KINDS = [kind for kind in Kind if kind is not Kind.ADDS]
ODD = ["raising from every method", "lying attributes", "text that is none", "SystemExit", "GeneratorExit"]
"""Exceptions that are caught wrongly most easily: each kind meets them all."""

pytestmark = pytest.mark.timeout(600 if WHOLE else 120)


@pytest.fixture
def at_end() -> Iterator[list[Adapter]]:
    """Adapters that are closed at the end."""
    adapters: list[Adapter] = []
    yield adapters
    for adapter in adapters:
        adapter.close(grace=timedelta(0))
    logs.configure("warning", "console")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("number", range(CROWDS))
def test_the_same_for_every_kind_of_handler(
    engine: Engine, tmp_path: Path, at_end: list[Adapter], number: int, kind: Kind
) -> None:
    """All neighbours take effect promptly, once; the poisoned one ends as a dead letter with its true error."""

    def adapter() -> EmbeddedAdapter:
        scope = AdapterScope(app="shop", broker="main", clock=SystemClock())
        return EmbeddedAdapter.build(f"embedded:///{tmp_path / 'broker.db'}", {}, scope)

    every = WITHOUT_SESSION if kind in {Kind.DIRECT, Kind.ASYNC} else list(PYTHON)
    turn = KINDS.index(kind)
    ways = every[number::CROWDS] if WHOLE else list(dict.fromkeys([*ODD, *every[turn :: len(KINDS)]]))
    crowd = Crowd(adapter, engine, ways, number, 500, NEIGHBOURS, kind=kind)
    at_end.append(crowd.sender)
    crowd.judge()
