"""The engine without a broker: deliveries are made here, in memory, and settlements end here."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from oncemq import App
from oncemq.config.build.catalog import Catalog
from oncemq.contracts.adapter import SettleFailed
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.crash.time_limits import Watchdog
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.plan import AppPlan
from oncemq.engine.process_context import ProcessContext
from oncemq.ledger import schema
from oncemq.message.envelope import Delivery, Message
from oncemq.observe.monitor import Monitor
from oncemq.testing.scripted import ScriptedAdapter

TOPIC = "orders"


class ForgetfulAdapter(ScriptedAdapter):
    """Settles in memory and keeps nothing, so that what grows is the engine's."""

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Sequence[SettleFailed]:
        """Mark them settled."""
        for delivery in deliveries:
            delivery.settled = True
        return ()


class Room:
    """One consumer with all its parts, driven from outside.

    Args:
        folder: for its state.
        database: a URL; without one, effects are external and units have no transaction.
        strategy: the only one of its chain.
    """

    def __init__(self, folder: Path, database: str | None, strategy: str) -> None:
        catalog = Catalog(adapters={"scripted": ForgetfulAdapter})
        app = App(
            "bench",
            brokers={"memory": "scripted://"},
            database=database,
            catalog=catalog,
            state=str(folder / "state"),
        )
        app.topic(TOPIC, key="body.order_id", strategies=[strategy])
        app.consumer(topic=TOPIC, name="work")(_in_database if database else _empty)
        self.plan: AppPlan = app.plan()
        self.engine: Engine | None = self.plan.engine
        if self.engine is not None:
            schema.create(self.engine, self.plan.tables())
        monitor = Monitor(None, self.plan.clock)
        limits: Callable[[str], None] = nothing
        shop = ProcessContext(
            self.plan.engines,
            self.plan.layout,
            self.plan.redis,
            self.plan.clock,
            monitor.observer,
            Watchdog(self.plan.clock.monotonic, limits, limits),
            self.plan.state,
            "bench",
            None,
            threading.Lock(),
            threading.Event(),
            Publishing({}, {}, frozenset()),
            tuple(None for _ in self.plan.engines),
            nothing,
        )
        consumer = self.plan.consumers[0]
        self.crew = ConsumerRuntime(consumer, self.plan.adapters[consumer.broker], shop)
        self.consumer = self.crew.consumer
        self.worker = self.crew._worker(0)

    def close(self) -> None:
        """Free files and connections."""
        self.crew.close()
        if self.engine is not None:
            self.engine.dispose()


def message(number: int) -> Message:
    """Return a message with a key of its own."""
    body = {"order_id": f"order-{number}", "user_id": f"user-{number % 1000}", "amount": 12.5}
    return Message(TOPIC, json.dumps(body).encode(), message_id=f"m{number}")


def _empty(order: dict) -> None:  # type: ignore[type-arg]
    """Do nothing."""


def _in_database(order: dict, session: Session) -> None:  # type: ignore[type-arg]
    """Do nothing, in a transaction."""
