"""Runs an app in the caller's thread: no threads of its own, and time passes only when told to."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, Engine, Table, func, select

from oncemq.contracts.strategy import UpkeepTask
from oncemq.engine.application import ConsumerSink
from oncemq.engine.background_work import tasks_of
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.crash.time_limits import TimeLimits, TimeLimitSlot, Watchdog
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import Relay
from oncemq.engine.plan import AppPlan
from oncemq.engine.process_context import ProcessContext
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import delayed, outbox, parking
from oncemq.observe.events import Observer
from oncemq.observe.monitor import Monitor
from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep.generations import begin_all

_MOST_ROUNDS: Final = 10_000
_GRACE: Final = timedelta(0)
_TICK: Final = timedelta(milliseconds=1)

Result = TypeVar("Result")


class ProcessDied(BaseException):
    """Raised at a kill point instead of killing the test's process."""


class _NoWatchdog(Watchdog):
    """Enforces no time limits: it would need a thread, and handlers take no time of a fake clock."""

    def watch(self, consumer: str, slot: TimeLimitSlot, limits: TimeLimits) -> None:
        """Ignore it."""


class SteppedProcess:
    """One process of an app.

    Args:
        plan: the app.
        deliver: one function for each broker: hands over what is due, and returns whether there was any.
        clock: the clock of the plan, before any correction.
        observer: receives all events.
        point: called with the name of each kill point reached; ProcessDied ends the process.
    """

    def __init__(
        self,
        plan: AppPlan,
        deliver: Sequence[Callable[[], bool]],
        next_delivery: Callable[[], datetime | None],
        clock: FakeClock,
        observer: Observer,
        point: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._deliver = deliver
        self._next_delivery = next_delivery
        self._clock = clock
        self._busy = False
        self._stepping: set[ConsumerRuntime] = set()
        point = plan.observed(point)
        self._runner = asyncio.Runner()
        observers = Monitor(None, plan.clock, others=[observer, *plan.observers], redact=plan.redact).observer
        consumed = frozenset(consumer.broker for consumer in plan.consumers)
        self._publishing = Publishing(plan.adapters, plan.topics, consumed, observers)
        self._relays = Relay.of(plan, self._publishing, observers, point)
        context = ProcessContext(
            plan.engines,
            plan.layout,
            plan.redis,
            plan.clock,
            observers,
            _NoWatchdog(plan.clock.monotonic, _ignore, _ignore),
            None,
            "",
            None,
            threading.Lock(),
            threading.Event(),
            self._publishing,
            self._relays,
            point,
        )
        self._crews = {
            consumer.name: ConsumerRuntime(consumer, plan.adapters[consumer.broker], context)
            for consumer in plan.consumers
        }
        self._steps = [(crew, crew.stepper(self._runner)) for crew in self._crews.values()]
        self._tasks: list[tuple[Engine, UpkeepTask]] = [
            (engine, task)
            for shard, (engine, relay) in enumerate(zip(plan.engines, self._relays, strict=True))
            for task in tasks_of(plan, relay, self._crews.values(), shard)
        ]

    def start(self) -> None:
        """Create the ledger's tables, and subscribe."""
        plan = self._plan
        for engine in plan.engines:
            schema.create(engine, plan.tables())
            begin_all(engine, plan.generations)
        shards.create(plan.engines, plan.name, plan.layout)
        for relay in self._relays:
            relay.step()
        sink = ConsumerSink(self._crews)
        for name, adapter in plan.adapters.items():
            adapter.open(
                [consumer.subscription for consumer in plan.consumers if consumer.broker == name], sink
            )
        self._publishing.open()

    def stop(self) -> None:
        """Disconnect; what is unsettled goes back to the broker."""
        for adapter in self._plan.adapters.values():
            adapter.close(grace=_GRACE)
        for crew in self._crews.values():
            crew.close()
            crew.close_loop(self._runner)
        self._runner.close()
        if self._plan.redis is not None:
            self._plan.redis.close()
        for engine in self._plan.engines:
            engine.dispose()

    def settle(self) -> None:
        """Work until nothing is ready; inside of a handler it does nothing, since the work is going on.

        Raises:
            ProcessDied: `point` raised it.
            RuntimeError: there is always more to do.
        """
        self._alone(self._settle)

    def advance(self, by: timedelta) -> None:
        """Let time pass, and do the work that is due, each at its time.

        Raises:
            ProcessDied: `point` raised it.
            RuntimeError: there is always more to do.
        """
        if self._busy:
            self._clock.advance(by)
            return
        self._alone(lambda: self._advance(self._clock.monotonic() + by.total_seconds()))

    def work_until(self, reached: Callable[[], bool], within: timedelta) -> None:
        """Work until `reached`, or until so much time has passed; also inside of a handler, whose own consumer is left out.

        Raises:
            ProcessDied: `point` raised it.
            RuntimeError: there is always more to do.
        """
        outer, self._busy = self._busy, True
        try:
            self._advance(self._clock.monotonic() + within.total_seconds(), reached)
        finally:
            self._busy = outer

    def _alone(self, work: Callable[[], None]) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            work()
        finally:
            self._busy = False

    def _advance(self, until: float, reached: Callable[[], bool] = lambda: False) -> None:
        self._settle(reached)
        while not reached() and (due := self._next_due()) is not None and due < until:
            # Not less than the clock can show: else it stands, and the same moment would be next for ever.
            self._clock.advance(max(_TICK, timedelta(seconds=due - self._clock.monotonic())))
            self._run_tasks(everything=False)
            self._settle(reached)
        if reached():
            return
        self._clock.advance(timedelta(seconds=max(0.0, until - self._clock.monotonic())))
        self._run_tasks(everything=True)
        self._settle(reached)

    def _settle(self, reached: Callable[[], bool] = lambda: False) -> None:
        for _ in range(_MOST_ROUNDS):
            if reached() or not self._round():
                return
        raise RuntimeError(
            f"the app is still busy after {_MOST_ROUNDS} rounds: do handlers publish without end?"
        )

    def _round(self) -> bool:
        worked = [deliver() for deliver in self._deliver]
        worked += [self._step(crew, step) for crew, step in self._steps if not crew.consumer.gate.left()]
        worked += [relay.step() for relay in self._relays]
        return any(worked)

    def _step(self, crew: ConsumerRuntime, step: Callable[[], bool]) -> bool:
        if crew in self._stepping:
            return False
        self._stepping.add(crew)
        try:
            return step()
        finally:
            self._stepping.discard(crew)

    def _run_tasks(self, *, everything: bool) -> None:
        """Run background tasks: those that bring messages back, or all of them."""
        for engine, task in self._tasks:
            if everything or task.everywhere:
                for _ in range(_MOST_ROUNDS):
                    if not task.run(engine):
                        break

    def _next_due(self) -> float | None:
        """Return the monotonic seconds at which something happens next, later than now."""
        now, wall = self._clock.monotonic(), self._clock.now()
        moments = [self._next_delivery(), *(_first_due(engine, wall) for engine in self._plan.engines)]
        seconds = [now + (moment - wall).total_seconds() for moment in moments if moment is not None]
        for crew in self._crews.values():
            seconds.append(now + crew.consumer.gate.left())
            wake = crew.consumer.scheduler.next_wake()
            if wake is not None:
                seconds.append(wake)
        return min((due for due in seconds if due > now), default=None)


def _ignore(_consumer: str) -> None:
    """Ignore it."""


def _first_due(engine: Engine, now: datetime) -> datetime | None:
    """Return when the next parked or stored message is due, later than now."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        found = [
            connection.execute(select(func.min(due)).where(due > now, due < parking.DEAD)).scalar()
            for due in (_due(parking.TABLE), _due(outbox.TABLE), _due(delayed.TABLE))
        ]
    return min((moment for moment in found if moment is not None), default=None)


def _due(table: Table) -> ColumnElement[datetime]:
    return table.c.due_at
