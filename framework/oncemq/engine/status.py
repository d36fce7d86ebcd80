"""Reports status changes of the consumers of this process: subscribed or disconnected, and waiting messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, MetaData

from oncemq.contracts.broker_queries import ConcernedAdapter, DeadLetterCounter
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.ledger import consumer_summary
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import dead_letters, delayed, held_letters, outbox
from oncemq.ledger.records import claims
from oncemq.ledger.size import stored_bytes
from oncemq.observe.observers import Observers
from oncemq.observe.state import ConsumerState, OutboxState

_DEPTH_EVERY = 15.0
_SIZE_EVERY = 60.0


class StatusReporter:
    """Reports the state of every consumer, and changes of its connection.

    Args:
        plan: the app.
        crews: its consumers.
        observers: notified of lost and resumed connections.

    Attributes:
        outbox: the number of messages waiting to be sent; None without metrics.
        ledger_bytes: the size of the ledger; None without metrics.
    """

    def __init__(self, plan: AppPlan, crews: Mapping[str, ConsumerRuntime], observers: Observers) -> None:
        self._plan = plan
        self._crews = crews
        self._observers = observers
        self._lost_at: dict[str, float] = {}
        self._depths: dict[str, int | None] = {}
        self._dead: dict[str, int | None] = {}
        self._in_ledger: dict[str, _InLedger] = {}
        self._claiming = {consumer.name for consumer in plan.consumers if _claims(consumer)}
        self._next_depth = 0.0
        self._next_size = 0.0
        self._concerns: dict[str, Sequence[str]] = {}
        self.outbox: OutboxState | None = None
        self.ledger_bytes: int | None = None

    def rows(self) -> tuple[ConsumerState, ...]:
        """Return one row for each consumer; cheap, from any thread."""
        health = {row.consumer: row for adapter in self._plan.adapters.values() for row in adapter.health()}
        rows, breakers = [], self._plan.breakers
        for name, crew in self._crews.items():
            row = health.get(name)
            alive = crew.alive()
            detail = row.detail if row is not None else ""
            state = crew.consumer.state(
                subscribed=row is not None and row.subscribed and alive,
                detail=detail if alive else "a worker thread has ended",
            )
            here = self._in_ledger.get(name, _UNKNOWN)
            rows.append(
                replace(
                    state,
                    depth=self._depths.get(name),
                    dead_letters=self._dead.get(name),
                    parked=here.parked,
                    parked_seconds=here.parked_seconds,
                    held_keys=here.held_keys,
                    unknown_claims=here.unknown_claims,
                    breakers=() if breakers is None else breakers.states(name),
                )
            )
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
            self._count_dead_letters()
            self._ask_outbox()
            self._count_in_ledger()
        if self._plan.http is not None and now >= self._next_size:
            self._next_size = now + _SIZE_EVERY
            self._measure_ledger()

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

    def _count_dead_letters(self) -> None:
        for consumer in self._plan.consumers:
            adapter = self._plan.adapters[consumer.broker]
            if consumer.name in self._lost_at or not isinstance(adapter, DeadLetterCounter):
                continue
            try:
                there = adapter.dead_letter_count(consumer.subscription)
                for engine in self._plan.engines:
                    with _reading(engine) as connection:
                        there += dead_letters.count(connection, consumer.scope, consumer.only_topic)
                        there += held_letters.count(connection, consumer.scope, consumer.only_topic)
            except Exception as error:
                self._observers.failed(f"counting the dead letters of {consumer.name}", error)
                self._dead[consumer.name] = None
            else:
                self._dead[consumer.name] = there

    def _count_in_ledger(self) -> None:
        for consumer in self._plan.consumers:
            parks = self._crews[consumer.name].parked is not None
            if not parks and consumer.name not in self._claiming:
                continue
            try:
                self._in_ledger[consumer.name] = self._counted(consumer, parks=parks)
            except Exception as error:
                self._observers.failed(f"counting what waits in the ledger for {consumer.name}", error)
                self._in_ledger[consumer.name] = _UNKNOWN

    def _counted(self, consumer: ConsumerPlan, *, parks: bool) -> "_InLedger":
        now = self._plan.clock.now()
        parked, oldest, doubtful, held = 0, now, 0, 0
        for engine in self._plan.engines:
            with _reading(engine) as connection:
                if parks:
                    count, since = consumer_summary.parked(connection, consumer.scope, consumer.only_topic)
                    parked, oldest = parked + count, min(oldest, since or now)
                if consumer.hold_dead is not None:
                    held += held_letters.keys(connection, consumer.scope, consumer.only_topic)
                if consumer.name in self._claiming:
                    doubtful += claims.count_in_doubt(connection, consumer.scope, now)
        return _InLedger(
            parked if parks else None,
            (now - oldest).total_seconds() if parks else None,
            doubtful if consumer.name in self._claiming else None,
            held if consumer.hold_dead is not None else None,
        )

    def _measure_ledger(self) -> None:
        if not self._plan.engines:
            return
        try:
            self.ledger_bytes = sum(_size(engine) for engine in self._plan.engines)
        except Exception as error:
            self._observers.failed("measuring the ledger", error)
            self.ledger_bytes = None


@dataclass(frozen=True, slots=True)
class _InLedger:
    """Waiting messages, doubtful effects and held keys of a consumer in the ledger; None where it is unknown or cannot be."""

    parked: int | None = None
    parked_seconds: float | None = None
    unknown_claims: int | None = None
    held_keys: int | None = None


_UNKNOWN = _InLedger()


def _claims(consumer: ConsumerPlan) -> bool:
    metadata = MetaData()
    tables = {table.name for strategy in consumer.strategies_on(0) for table in strategy.tables(metadata)}
    return claims.TABLE.name in tables


def _reading(engine: Engine) -> Connection:
    return engine.connect().execution_options(**{READ_ONLY: True})


def _size(engine: Engine) -> int:
    with _reading(engine) as connection:
        return stored_bytes(connection)


def _depth(engine: Engine, app: str, now: datetime) -> tuple[outbox.Depth, delayed.Waiting]:
    with _reading(engine) as connection:
        return outbox.depth(connection, app), delayed.waiting(connection, app, now)
