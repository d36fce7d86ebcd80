"""Reports status changes of the consumers of this process: subscribed or disconnected, and waiting messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Engine

from oncemq.contracts.broker_queries import ConcernedAdapter
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.plan import AppPlan
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import delayed, outbox
from oncemq.observe.observers import Observers
from oncemq.observe.state import ConsumerState, OutboxState

_DEPTH_EVERY = 15.0


class StatusReporter:
    """Reports the state of every consumer, and changes of its connection.

    Args:
        plan: the app.
        crews: its consumers.
        observers: notified of lost and resumed connections.

    Attributes:
        outbox: the number of messages waiting to be sent; None without metrics.
    """

    def __init__(self, plan: AppPlan, crews: Mapping[str, ConsumerRuntime], observers: Observers) -> None:
        self._plan = plan
        self._crews = crews
        self._observers = observers
        self._lost_at: dict[str, float] = {}
        self._depths: dict[str, int | None] = {}
        self._parked: dict[str, int | None] = {}
        self._next_depth = 0.0
        self._concerns: dict[str, Sequence[str]] = {}
        self.outbox: OutboxState | None = None

    def rows(self) -> tuple[ConsumerState, ...]:
        """Return one row for each consumer; cheap, from any thread."""
        health = {row.consumer: row for adapter in self._plan.adapters.values() for row in adapter.health()}
        rows = []
        for name, crew in self._crews.items():
            row = health.get(name)
            alive = crew.alive()
            detail = row.detail if row is not None else ""
            state = crew.consumer.state(
                subscribed=row is not None and row.subscribed and alive,
                detail=detail if alive else "a worker thread has ended",
            )
            rows.append(replace(state, depth=self._depths.get(name), parked=self._parked.get(name)))
        return tuple(rows)

    def look(self) -> None:
        """Report changes since the last look."""
        now = self._plan.clock.monotonic()
        for row in self.rows():
            broker = self._crews[row.consumer].consumer.plan.broker
            if row.pauses:
                continue  # some clients leave the group while they are paused
            if not row.subscribed and row.consumer not in self._lost_at:
                self._lost_at[row.consumer] = now
                self._observers.connection_lost(broker, row.consumer)
            elif row.subscribed and row.consumer in self._lost_at:
                lasted = timedelta(seconds=now - self._lost_at.pop(row.consumer))
                self._observers.connection_resumed(broker, row.consumer, after=lasted)
        self._tell_concerns()

    def count(self) -> None:
        """Query brokers and databases for what waits there, if metrics are enabled; may be blocked by one that is silent."""
        now = self._plan.clock.monotonic()
        if self._plan.http is not None and now >= self._next_depth:
            self._next_depth = now + _DEPTH_EVERY
            self._ask_depths()
            self._ask_outbox()
            self._count_parked()

    def _tell_concerns(self) -> None:
        """Warn about new concerns of adapters, each once until it has ended."""
        for name, adapter in self._plan.adapters.items():
            if not isinstance(adapter, ConcernedAdapter):
                continue
            mine = [consumer.subscription for consumer in self._plan.consumers if consumer.broker == name]
            if not mine:
                continue
            found = adapter.concerns(mine)
            known = self._concerns.get(name, ())
            self._concerns[name] = found
            for text in found:
                if text not in known:
                    self._observers.warned(text)

    def _ask_outbox(self) -> None:
        plan = self._plan
        if not plan.engines:
            return
        try:
            now = plan.clock.now()
            found = [_depth(engine, plan.name, now) for engine in plan.engines]
        except Exception as error:
            self._observers.failed("counting the outbox", error)
            self.outbox = None
            return
        depths = [depth for depth, _ in found]
        later = sum(waiting.messages for _, waiting in found)
        due = min((waiting.next_due for _, waiting in found if waiting.next_due is not None), default=now)
        oldest = min((depth.oldest for depth in depths if depth.oldest is not None), default=None)
        age = (now - oldest).total_seconds() if oldest is not None else 0.0
        messages = sum(depth.messages for depth in depths)
        refused, dead = sum(depth.refused for depth in depths), sum(depth.dead for depth in depths)
        late = max(0.0, (now - due).total_seconds())
        self.outbox = OutboxState(messages, max(0.0, age), refused, dead, later, late)

    def _ask_depths(self) -> None:
        for consumer in self._plan.consumers:
            if consumer.name in self._lost_at:
                continue
            try:
                depth = self._plan.adapters[consumer.broker].depth(consumer.subscription)
            except Exception as error:
                self._observers.failed(f"counting the waiting messages of {consumer.name}", error)
                depth = None
            self._depths[consumer.name] = depth

    def _count_parked(self) -> None:
        for name, crew in self._crews.items():
            if crew.parked is None:
                continue
            try:
                self._parked[name] = crew.parked.count()
            except Exception as error:
                self._observers.failed(f"counting the parked messages of {name}", error)
                self._parked[name] = None


def _depth(engine: Engine, app: str, now: datetime) -> tuple[outbox.Depth, delayed.Waiting]:
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        return outbox.depth(connection, app), delayed.waiting(connection, app, now)
