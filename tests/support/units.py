"""Units of chosen messages, run as a worker would run them, without scheduler, settlement and broker."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Engine

from oncemq.common.clock import Clock, SystemClock
from oncemq.contracts.strategy import Strategy
from oncemq.contracts.unit import Unit
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.crash.flight_recorder import AnyRecorder, NoRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.transaction.async_call import awaiting
from oncemq.engine.transaction.batch_loop import BatchLoop
from oncemq.engine.transaction.item_loop import ItemLoop
from oncemq.engine.transaction.retrier import TransactionRetrier
from oncemq.engine.transaction.unit_transaction import UnitTransaction
from oncemq.engine.workers.failure_isolation import UnitResult, UnitRunner
from oncemq.message.envelope import Delivery, Message
from oncemq.message.outgoing import OutgoingTopic
from oncemq.redis import RedisClient
from oncemq.testing.event_loop import Loop
from oncemq.testing.scopes import scope_for
from support.engine import make_consumer


def build(
    kind: type[Strategy],
    engine: Engine,
    consumer: str,
    options: Mapping[str, Any] | None = None,
    redis: RedisClient | None = None,
) -> Any:
    """Return a strategy as an app would build it for the consumer `shop.<consumer>`."""
    return kind.build(options or {}, scope_for(f"shop.{consumer}", engine, redis=redis))


class UnitBench:
    """One worker's way of running units.

    Args:
        engine: the database.
        handler: the handler under test.
        strategies: instances, or classes, with or without options, to be built for this bench's own consumer.
        clock: where time comes from.
        point: told how far a run has come.
        recorder: the flight recorder.
        lane: shared with siblings.
        name: the consumer's, for several benches of one consumer; default: its own.
        topics: what the handler may publish to; needs a relay in the attempt.
        loop: where an async handler runs; None = the handler is sync.
        soft_limit: of an async handler.

    Attributes:
        result: what came of the last unit.
        failures: what was told of errors that change nothing.
        lanes: what was told of exclusive units.
        resumed: deferred keys that a strategy woke.
        pauses: the pauses before further tries; no one really sleeps.
        told: the numbers of tries with which the database's failures were told.
        savepoint_every: how many items of a unit are undone together; None = all.
        guarded: handlers that send statements have savepoints of their own.
        unit: the last one.
        runner: what runs it.
    """

    savepoint_every: int | None = None
    guarded: bool = False
    unit: Unit

    def __init__(
        self,
        engine: Engine,
        handler: Callable[..., Any],
        *strategies: Strategy | type[Strategy] | tuple[type[Strategy], Mapping[str, Any]],
        clock: Clock | None = None,
        point: Callable[[str], None] = nothing,
        recorder: AnyRecorder | None = None,
        lane: Contention | None = None,
        name: str | None = None,
        topics: Mapping[str, OutgoingTopic] = MappingProxyType({}),
        loop: Loop | None = None,
        soft_limit: timedelta | None = None,
    ) -> None:
        self.name = name or f"c{uuid.uuid4().hex[:10]}"
        built = [self._built(asked, engine) for asked in strategies]
        self._loop = loop
        self.plan = make_consumer(handler, built, name=self.name, topics=topics)
        self.slot = TimeLimitSlot()
        self.lane = lane or Contention()
        self.clock = clock or SystemClock()
        self.failures: list[BaseException] = []
        self.lanes: list[bool] = []
        self.pauses: list[float] = []
        self.told: list[int] = []
        self.resumed: list[str] = []
        self.result = UnitResult()
        chain, recorder = Chain(built), recorder or NoRecorder()
        called = self.plan.handler if loop is None else awaiting(self.plan.handler, self.slot, soft_limit)
        make_loop = BatchLoop if self.plan.handler.is_batch else ItemLoop
        self.loop = make_loop(chain, called, self.clock.monotonic, recorder, self.slot, point)
        place = engine if loop is None else loop.engine
        self.attempt = UnitTransaction(
            place, chain, self.plan.reader, self.loop, recorder, self.slot, self.clock, self._failed, point
        )
        tries = TransactionRetrier(
            self.attempt,
            self.lane,
            lambda tries, *_: self.told.append(tries),
            lambda on, _: self.lanes.append(on),
            self.pauses.append,
        )
        self.runner = UnitRunner(chain, self.attempt, self.lane, tries, self._failed)

    def _built(self, asked: Any, engine: Engine) -> Strategy:
        if isinstance(asked, Strategy):
            return asked
        kind, options = asked if isinstance(asked, tuple) else (asked, None)
        return build(kind, engine, self.name, options)

    def _failed(self, doing: str, error: BaseException) -> None:
        del doing
        self.failures.append(error)

    def delivery(self, order: Mapping[str, Any]) -> Delivery:
        """Return a delivery of `order`, understood."""
        delivery = Delivery(Message("orders", json.dumps(order).encode()))
        envelope, payload = self.plan.reader.read(delivery.message)
        delivery.envelope, delivery.key, delivery.payload = envelope, envelope.key, payload
        return delivery

    def execute(self, deliveries: Sequence[Delivery], seconds: float = 60.0) -> list[str]:
        """Run one unit, and return what became of each delivery, in order."""
        unit = Unit(
            self.plan.scope,
            deliveries,
            self.clock.monotonic() + seconds,
            decode=self.plan.reader.decode,
            resume=self.resumed.append,
        )
        unit.savepoint_every, unit.guarded = self.savepoint_every, self.guarded
        self.unit = unit
        execute = self.runner.execute
        self.result = execute(unit) if self._loop is None else self._loop.run(execute, unit)
        return [self.result.verdicts[delivery].outcome.value for delivery in deliveries]

    def run(self, *orders: Mapping[str, Any], seconds: float = 60.0) -> list[str]:
        """Run `orders` as one unit, and return what became of each, in order."""
        return self.execute([self.delivery(order) for order in orders], seconds)

    def errors(self) -> list[str]:
        """Return the names of the errors that messages are charged with, in order."""
        charged = [verdict.error for verdict in self.result.verdicts.values() if verdict.error is not None]
        return [type(error).__name__ for error in charged]


def orders(*ids: str, key: str | None = None, **fields: Any) -> list[dict[str, Any]]:
    """Return one order for each id, each of a key of its own unless told otherwise."""
    return [{"id": order, "key": key or f"k-{order}", **fields} for order in ids]
