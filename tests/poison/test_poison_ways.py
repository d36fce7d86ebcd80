"""One poisoned message at the head of, in the middle of, and alone in a queue, in small and large units.

Small here; `make poison` runs every way at every place with 300 neighbours.
"""

import io
import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.adapter import AdapterScope, DeadLetter, Subscription
from oncemq.clock import SystemClock
from oncemq.message import headers
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe import logs
from oncemq.retry.backoff import RetryPolicy
from oncemq.run.plan import ConsumerPlan
from oncemq_adapters.embedded import EmbeddedAdapter
from oncemq_strategies.unique_key import UniqueKey
from poison.ways import WAYS
from support.databases import database, engine
from support.effects import effects, give
from support.engine import make_app, make_consumer, running
from support.program import eventually
from support.units import build

__all__ = ["database", "engine"]

WHOLE = bool(os.environ.get("ONCEMQ_POISON"))
NEIGHBOURS = 300 if WHOLE else 12
CROWDS = 36 if WHOLE else 3
"""So many apps; in each every way has a consumer and a queue of its own, and all share one process's time."""
ATTEMPTS = 2
PROMPTLY = 10.0
PLACES = ("head", "middle", "alone")
NO_RETRY = frozenset({"Reject with an odd text"})

pytestmark = pytest.mark.timeout(600 if WHOLE else 120)


class Crowd:
    """One app with a consumer for each way to fail."""

    def __init__(self, folder: Path, engine: Engine, ways: Sequence[str], place: int, limit: int) -> None:
        self._folder = folder
        self._engine = engine
        self._ways = WAYS[engine.dialect.name]
        # Fresh names: the ledger remembers what earlier tests have applied.
        prefix = f"c{uuid.uuid4().hex[:8]}-"
        self.names = {f"{prefix}{number}": way for number, way in enumerate(ways)}
        self._place = place
        self.tries: Counter[str] = Counter()
        self._mutex = threading.Lock()
        consumers = [self._consumer(name, limit) for name in self.names]
        self._subscriptions = {one.name: one.subscription for one in consumers}
        self.plan = make_app(self._adapter(), engine, *consumers)
        self.sender = self._adapter()
        self.sender.prepare(list(self._subscriptions.values()))

    def _adapter(self) -> EmbeddedAdapter:
        scope = AdapterScope(app="shop", broker="main", clock=SystemClock())
        return EmbeddedAdapter.build(f"embedded:///{self._folder / 'broker.db'}", {}, scope)

    def _consumer(self, name: str, limit: int) -> ConsumerPlan:
        def handler(order: dict[str, Any], session: Session) -> None:
            give(session, order)
            if order["bad"]:
                with self._mutex:
                    self.tries[name] += 1
                self._ways[self.names[name]](session)

        plan = make_consumer(
            handler,
            [build(UniqueKey, self._engine, name)],
            name=name,
            retry=RetryPolicy(attempts=ATTEMPTS, first=timedelta(milliseconds=10)),
            batch_limit=limit,
        )
        return replace(plan, subscription=Subscription(name, f"orders-{name}", name))

    def place_of(self, number: int) -> str:
        """Return where the poison of this consumer is: each place in turn."""
        return PLACES[(number + self._place) % len(PLACES)]

    def publish(self) -> set[str]:
        """Publish all, and return the ids of the neighbours."""
        healthy: set[str] = set()
        for number, name in enumerate(self.names):
            place = self.place_of(number)
            ids = [] if place == "alone" else [f"{name}-{one}" for one in range(NEIGHBOURS)]
            healthy.update(ids)
            orders = [{"id": one, "key": one, "bad": False} for one in ids]
            middle = len(ids) // 2 if place == "middle" else 0
            orders.insert(middle, {"id": f"{name}-bad", "key": f"{name}-bad", "bad": True})
            messages = [OutgoingMessage(json.dumps(order).encode()) for order in orders]
            self.sender.publish(f"orders-{name}", {}, messages)
        return healthy

    def dead(self) -> dict[str, list[DeadLetter]]:
        """Return the dead letters of each consumer."""
        found = self._subscriptions.items()
        return {name: list(self.sender.dead_letters(subscription, 10)) for name, subscription in found}


@pytest.fixture
def at_end() -> Iterator[list[EmbeddedAdapter]]:
    """Adapters that are closed at the end."""
    adapters: list[EmbeddedAdapter] = []
    yield adapters
    for adapter in adapters:
        adapter.close(grace=timedelta(0))
    logs.configure("warning", "console")


@pytest.mark.parametrize("limit", [1, 500], ids=["limit-1", "large"])
@pytest.mark.parametrize("place", range(3) if WHOLE else [0])
@pytest.mark.parametrize("number", range(CROWDS))
def test_one_poisoned_message_ends_as_a_dead_letter_and_harms_no_neighbour(
    engine: Engine, tmp_path: Path, at_end: list[EmbeddedAdapter], number: int, place: int, limit: int
) -> None:
    """All neighbours are applied promptly, once; the poisoned one is tried as often as configured, and says why."""
    ways = list(WAYS[engine.dialect.name])[number::CROWDS]
    if not WHOLE:
        # Small and large units take turns; on PostgreSQL, which has most of them, each way has its turn.
        ways = ways[limit == 1 :: 2 if engine.dialect.name == "postgresql" else 4]
    crowd = Crowd(tmp_path, engine, ways, place + number, limit)
    at_end.append(crowd.sender)
    healthy = crowd.publish()
    said = io.StringIO()
    logs.configure("info", "json", said)
    with running(crowd.plan) as app:
        began = monotonic()
        eventually(lambda: set(effects(engine)) >= healthy, "the neighbours")
        promptly = monotonic() - began
        eventually(
            lambda: all(crowd.dead().values()),
            "dead letters",
            60,
            said=lambda: missing(crowd) + said.getvalue()[-1500:],
        )
        assert app.state().phase.value == "running"
    assert sorted(effects(engine)) == sorted(healthy)
    # For 300 neighbours; the queues of a crowd share one process.
    assert promptly < PROMPTLY * max(1.0, len(healthy) / 300)
    for name, letters in crowd.dead().items():
        [letter] = letters
        way = crowd.names[name]
        assert json.loads(letter.message.body)["bad"], way
        carried = letter.message.headers
        wanted = 1 if way in NO_RETRY else ATTEMPTS
        assert carried[headers.ATTEMPT] == str(wanted), way
        assert carried[headers.ERROR_TEXT], way
        assert f'"identity":"{name}-bad"' in said.getvalue().replace(" ", ""), way
        assert "InfrastructureError" not in carried[headers.ERROR_CLASS], (way, dict(carried))


def missing(crowd: Crowd) -> str:
    """Return which ways have no dead letter."""
    return ", ".join(crowd.names[name] for name, letters in crowd.dead().items() if not letters)
