"""One poisoned message at the head of, in the middle of, and alone in a queue, in small and large units.

Small here; `make poison` runs every way at every place with 300 neighbours.
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
from poison.crowd import Crowd
from poison.ways import WAYS
from support.database.databases import database, engine

__all__ = ["database", "engine"]

WHOLE = bool(os.environ.get("ONCEMQ_POISON"))
NEIGHBOURS = 300 if WHOLE else 12
CROWDS = 36 if WHOLE else 3
"""So many apps; in each every way has a consumer and a queue of its own, and all share one process's time."""

pytestmark = pytest.mark.timeout(600 if WHOLE else 120)


@pytest.fixture
def at_end() -> Iterator[list[Adapter]]:
    """Adapters that are closed at the end."""
    adapters: list[Adapter] = []
    yield adapters
    for adapter in adapters:
        adapter.close(grace=timedelta(0))
    logs.configure("warning", "console")


@pytest.mark.parametrize("limit", [1, 500], ids=["limit-1", "large"])
@pytest.mark.parametrize("place", range(3) if WHOLE else [0])
@pytest.mark.parametrize("number", range(CROWDS))
def test_one_poisoned_message_ends_as_a_dead_letter_and_harms_no_neighbour(
    engine: Engine, tmp_path: Path, at_end: list[Adapter], number: int, place: int, limit: int
) -> None:
    """All neighbours are applied promptly, once; the poisoned one is tried as often as configured, and says why."""

    def adapter() -> EmbeddedAdapter:
        scope = AdapterScope(app="shop", broker="main", clock=SystemClock())
        return EmbeddedAdapter.build(f"embedded:///{tmp_path / 'broker.db'}", {}, scope)

    ways = list(WAYS[engine.dialect.name])[number::CROWDS]
    if not WHOLE:
        # Small and large units take turns; on PostgreSQL, which has most of them, each way has its turn.
        ways = ways[limit == 1 :: 2 if engine.dialect.name == "postgresql" else 4]
    crowd = Crowd(adapter, engine, ways, place + number, limit, NEIGHBOURS)
    at_end.append(crowd.sender)
    crowd.judge()
