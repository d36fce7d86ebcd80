"""One app with a consumer for each way to fail: a poisoned message among healthy ones, and what must become of both."""

import asyncio
import io
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from time import monotonic
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq.contracts.adapter import Adapter, DeadLetter, Subscription
from oncemq.contracts.checks import Effects
from oncemq.engine.plan import ConsumerPlan
from oncemq.handler.batch import Batch
from oncemq.message import headers
from oncemq.message.envelope import OutgoingMessage
from oncemq.observe import logs
from oncemq.retry.backoff import RetryPolicy
from oncemq_strategies.unique_key.strategy import UniqueKey
from poison.ways import ON_ROCKETMQ, WAYS
from support.apps.program import eventually
from support.effects import effects, give
from support.engine import make_app, make_consumer, running
from support.units import build

ATTEMPTS = 2
PROMPTLY = 10.0
PLACES = ("head", "middle", "alone")
NO_RETRY = frozenset({"Reject with an odd text"})


class Kind(StrEnum):
    """How a handler works, which decides who catches what it raises."""

    ADDS = "adds to its session"
    SPEAKS = "sends statements"
    BATCH = "takes a batch"
    DIRECT = "has effects elsewhere"
    ASYNC = "has effects elsewhere, on an event loop"


class Crowd:
    """One app.

    Args:
        make_adapter: returns adapters of one broker.
        engine: the database.
        ways: names of ways to fail.
        place: shifts which way is at which place of its queue.
        limit: the most messages in a unit.
        neighbours: healthy messages beside each poisoned one that is not alone.
        options: of each topic.
        kind: how handlers work.
    """

    def __init__(
        self,
        make_adapter: Callable[[], Adapter],
        engine: Engine,
        ways: Sequence[str],
        place: int,
        limit: int,
        neighbours: int,
        options: Mapping[str, Any] | None = None,
        kind: Kind = Kind.ADDS,
    ) -> None:
        self._options = options or {}
        self._kind = kind
        self._done: list[str] = []
        self._engine = engine
        self._ways = {**WAYS[engine.dialect.name], **ON_ROCKETMQ}
        self._neighbours = neighbours
        # Fresh names: the ledger remembers what earlier tests have applied.
        prefix = f"c{uuid.uuid4().hex[:8]}-"
        self.names = {f"{prefix}{number}": way for number, way in enumerate(ways)}
        self._place = place
        self.tries: Counter[str] = Counter()
        self._mutex = threading.Lock()
        consumers = [self._consumer(name, limit) for name in self.names]
        self._subscriptions = {consumer.name: consumer.subscription for consumer in consumers}
        self.plan = make_app(make_adapter(), engine, *consumers)
        self.sender = make_adapter()
        self.sender.prepare(list(self._subscriptions.values()))

    def _consumer(self, name: str, limit: int) -> ConsumerPlan:
        def adds(order: dict[str, Any], session: Session) -> None:
            give(session, order)
            self._fail(name, order, session)

        def speaks(order: dict[str, Any], session: Session) -> None:
            give(session, order)
            session.flush()
            self._fail(name, order, session)

        def batch(orders: Batch[dict[str, Any]], session: Session) -> None:
            for order in orders:
                give(session, order)
                self._fail(name, order, session)

        def direct(order: dict[str, Any]) -> None:
            self._fail(name, order, None)
            self._done.append(order["id"])

        async def later(order: dict[str, Any]) -> None:
            await asyncio.sleep(0)
            direct(order)

        kinds: Mapping[Kind, Callable[..., Any]] = {
            Kind.ADDS: adds,
            Kind.SPEAKS: speaks,
            Kind.BATCH: batch,
            Kind.DIRECT: direct,
            Kind.ASYNC: later,
        }
        external = self._kind in {Kind.DIRECT, Kind.ASYNC}
        plan = make_consumer(
            kinds[self._kind],
            [] if external else [build(UniqueKey, self._engine, name)],
            name=name,
            effects=Effects.EXTERNAL if external else Effects.DATABASE,
            retry=RetryPolicy(attempts=ATTEMPTS, first=timedelta(milliseconds=10)),
            batch_limit=limit,
        )
        return replace(plan, subscription=Subscription(name, f"orders-{name}", name, self._options))

    def _fail(self, name: str, order: dict[str, Any], session: Any) -> None:
        if order["bad"]:
            with self._mutex:
                self.tries[name] += 1
            self._ways[self.names[name]](session)

    def _effects(self) -> list[str]:
        return list(self._done) or effects(self._engine)

    def place_of(self, number: int) -> str:
        """Return where the poison of this consumer is: each place in turn."""
        return PLACES[(number + self._place) % len(PLACES)]

    def publish(self) -> set[str]:
        """Publish all, and return the ids of the neighbours."""
        healthy: set[str] = set()
        for number, name in enumerate(self.names):
            place = self.place_of(number)
            ids = [] if place == "alone" else [f"{name}-{at}" for at in range(self._neighbours)]
            healthy.update(ids)
            orders = [{"id": each, "key": each, "bad": False} for each in ids]
            middle = len(ids) // 2 if place == "middle" else 0
            orders.insert(middle, {"id": f"{name}-bad", "key": f"{name}-bad", "bad": True})
            messages = [OutgoingMessage(json.dumps(order).encode(), {}, order["key"]) for order in orders]
            self.sender.publish(f"orders-{name}", self._options, messages)
        return healthy

    def dead(self) -> dict[str, list[DeadLetter]]:
        """Return the dead letters of each consumer."""
        found = self._subscriptions.items()
        return {name: list(self.sender.dead_letters(subscription, 10)) for name, subscription in found}

    def missing(self) -> str:
        """Return which ways have no dead letter."""
        return ", ".join(self.names[name] for name, letters in self.dead().items() if not letters)

    def judge(self) -> None:
        """All neighbours are applied promptly, once; each poison ends as a dead letter that says why."""
        healthy, said = self.publish(), io.StringIO()
        logs.configure("info", "json", said)
        with running(self.plan) as app:
            began = monotonic()
            eventually(lambda: set(self._effects()) >= healthy, "the neighbours")
            promptly = monotonic() - began
            eventually(
                lambda: all(self.dead().values()),
                "dead letters",
                60,
                said=lambda: self.missing() + said.getvalue()[-1500:],
            )
            assert app.state().phase.value == "running"
        assert sorted(self._effects()) == sorted(healthy)
        # For 300 neighbours; the queues of a crowd share one process.
        assert promptly < PROMPTLY * max(1.0, len(healthy) / 300)
        for name, letters in self.dead().items():
            [letter] = letters
            self._judge_letter(name, letter, said.getvalue())

    def _judge_letter(self, name: str, letter: DeadLetter, said: str) -> None:
        way, carried = self.names[name], letter.message.headers
        assert json.loads(letter.message.body)["bad"], way
        wanted = 1 if way in NO_RETRY else ATTEMPTS
        assert carried[headers.ATTEMPT] == str(wanted), way
        assert carried[headers.ERROR_TEXT], way
        assert f'"identity":"{name}-bad"' in said.replace(" ", ""), way
        assert "InfrastructureError" not in carried[headers.ERROR_CLASS], (way, dict(carried))
