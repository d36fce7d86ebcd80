"""Runs a whole app in this process: opened, watched, drained and closed, from top to bottom."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from oncemq.engine.background_work import start_upkeep
from oncemq.engine.base.hook_points import nothing
from oncemq.engine.breakers.control import BreakerControl
from oncemq.engine.clock_skew import ClockWatch
from oncemq.engine.consumer_runtime import ConsumerRuntime
from oncemq.engine.crash.process_lock import ProcessLock
from oncemq.engine.crash.suspects import SuspectBook, collect, tell
from oncemq.engine.crash.time_limits import Watchdog
from oncemq.engine.crash.worker_registry import WorkerRegistry
from oncemq.engine.database_watch import DatabaseWatch
from oncemq.engine.group_ownership import own
from oncemq.engine.ordered_pauses import OrderedPauses
from oncemq.engine.outbox.confirmed_publisher import Publishing
from oncemq.engine.outbox.relay import Relay
from oncemq.engine.plan import AppPlan
from oncemq.engine.process_context import ProcessContext
from oncemq.engine.status import StatusReporter
from oncemq.engine.stop_conditions import Ending, Retries, Until
from oncemq.engine.stop_times import StopTimes
from oncemq.errors import ConfigError, InfrastructureError
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards, signals
from oncemq.ledger.database import probe
from oncemq.message.envelope import Delivery
from oncemq.observe.events import TimeLimit
from oncemq.observe.monitor import Monitor
from oncemq.observe.observers import Observers
from oncemq.observe.state import AppState, Phase
from oncemq.redis.probe import startup_warnings as redis_warnings
from oncemq.retry.classify import Fault, classify
from oncemq.upkeep.generations import begin_all, ensure_begun
from oncemq.upkeep.runner import Upkeep

Result = TypeVar("Result")


def through_cuts(step: Callable[[], Result]) -> Result:
    """Return what `step` returns; a step of the start whose connection was cut is repeated once, on a new one."""
    try:
        return step()
    except (DBAPIError, InfrastructureError) as error:
        if classify(error) not in {Fault.OFFLINE, Fault.TRANSIENT}:
            raise
    return step()


class ConsumerSink:
    """All consumers of a process; the sink of all adapters."""

    def __init__(self, crews: Mapping[str, ConsumerRuntime]) -> None:
        self._crews = crews

    def deliver(self, deliveries: Sequence[Delivery], consumer: str) -> None:
        """Pass deliveries to their consumer."""
        self._crews[consumer].consumer.receive(deliveries)

    def lost(self, consumer: str, generation: int, *, alone: bool = False) -> None:
        """Notify a consumer that its deliveries of this generation are void."""
        self._crews[consumer].consumer.lost(generation, alone=alone)

    def release(self, consumer: str, generation: int) -> Sequence[Delivery]:
        """Let a consumer run nothing more of this generation; returns what waited."""
        return self._crews[consumer].consumer.release(generation)


_EXTEND_WHEN_LEFT = 15.0
_EXTEND_BY = timedelta(seconds=60)


def extend_leases(plan: AppPlan, crews: Mapping[str, ConsumerRuntime], observers: Observers) -> None:
    """Extend leases that expire within the next seconds; a lease that cannot be extended becomes void by itself."""
    soon = plan.clock.monotonic() + _EXTEND_WHEN_LEFT
    for crew in crews.values():
        consumer = crew.consumer
        if not consumer.adapter.capabilities.lease:
            continue
        held = [*consumer.running(), *consumer.scheduler.snapshot()]
        ending = [
            delivery for delivery in held if delivery.expires_at is not None and delivery.expires_at < soon
        ]
        if not ending:
            continue
        try:
            consumer.adapter.extend(ending, _EXTEND_BY)
        except Exception as error:
            observers.failed("extending leases", error)


_TICK = 0.1
_LOOK_EVERY = 1.0


class Application:
    """Runs a plan until `stop` is called.

    Args:
        plan: the resolved configuration of the app.
        monitor: logs, metrics and health; made from the plan by default.
        point: called with the name of each kill point reached; for tests that kill the process there.
        retries: an observer that `monitor` also notifies; pending retries keep `until_idle` from ending.
    """

    def __init__(
        self,
        plan: AppPlan,
        *,
        monitor: Monitor | None = None,
        point: Callable[[str], None] = nothing,
        retries: Retries | None = None,
    ) -> None:
        self._plan = plan
        self._monitor = monitor or Monitor(plan.http, plan.clock, others=plan.observers, redact=plan.redact)
        self._observer = self._monitor.observer
        self._point = plan.observed(point)
        self._phase = Phase.STARTING
        self._leaving = threading.Event()
        # A queue and no Event: a signal handler may run while this thread holds an Event's lock.
        self._stop: SimpleQueue[None] = SimpleQueue()
        self._presence: ProcessLock | None = None
        self._running_since = 0.0
        self._crews: dict[str, ConsumerRuntime] = {}
        consumed = frozenset(consumer.broker for consumer in plan.consumers)
        self._publishing = Publishing(plan.adapters, plan.topics, consumed, self._observer)
        self._relays = Relay.of(plan, self._publishing, self._observer, self._point)
        self._standing = StatusReporter(plan, self._crews, self._observer)
        self._roster = WorkerRegistry(plan)
        self._signals = signals.LedgerSignals(plan.engine, plan.clock, plan.scopes.values())
        self._pauses = OrderedPauses(plan, self._crews, self._observer, self._signals)
        self._breakers = BreakerControl(
            plan.breakers, plan.engine, plan.clock, plan.scopes, self._crews, self._observer
        )
        self._clock_watch = ClockWatch(plan, self._observer)
        self._database_watch = DatabaseWatch(plan, self._observer, self._visit, self._signals)
        self._upkeep: Sequence[Upkeep] = ()
        self._watchdog: Watchdog | None = None
        self._retries = retries or Retries(plan.clock)
        self._clean, self._code = True, 0

    def stop(self) -> None:
        """Request an orderly stop; from any thread or a signal handler."""
        self._stop.put(None)

    def run(
        self, until_idle: timedelta | Until | None = None, *, started: Callable[[], None] = lambda: None
    ) -> int:
        """Run until `stop`, or until no message has arrived for `until_idle`; returns the exit code.

        Args:
            until_idle: None = run until `stop`; with a deadline as `Until`.
            started: called when every consumer is subscribed.

        Raises:
            OnceMQError: the app could not start; everything opened so far is closed.
        """
        try:
            self._start()
        except BaseException:
            self._abandon()
            raise
        self._phase = Phase.RUNNING
        self._running_since = self._plan.clock.monotonic()
        try:
            started()
            self._watch(Until(until_idle) if isinstance(until_idle, timedelta) else until_idle)
        finally:
            self._drain()
        return self._code if self._clean else 1

    def _start(self) -> None:
        plan = self._plan
        for warning in (*plan.warnings, *redis_warnings(plan.redis)):
            self._observer.warned(warning)
        book = None
        for engine in plan.engines:
            through_cuts(partial(probe.prove, engine))
            through_cuts(partial(schema.ensure, engine, plan.tables()))
            through_cuts(partial(schema.insist_on_rights, engine, plan.tables()))
            for warning in through_cuts(partial(probe.startup_warnings, engine)):
                self._observer.warned(warning)
            through_cuts(partial(self._clock_watch.measure, engine))
        through_cuts(partial(shards.ensure, plan.engines, plan.name, plan.layout))
        through_cuts(partial(ensure_begun, plan.engines, plan.generations))
        for warning in through_cuts(partial(own, plan)):
            self._observer.warned(warning)
        if plan.state is not None:
            self._presence = _present(plan.state)
            book = SuspectBook(plan.engine, plan.state)
            tell(through_cuts(partial(collect, plan.state, book)), book, self._observer)
        through_cuts(partial(self._man, book))
        self._monitor.serve(self.state)
        through_cuts(self._roster.sign_on)
        through_cuts(self._pauses.begin)
        self._database_watch.start()
        for crew in self._crews.values():
            crew.start()
        self._open_adapters()
        self._publishing.open()
        self._upkeep = start_upkeep(plan, self._observer, self._relays, self._crews.values())

    def _man(self, book: SuspectBook | None) -> None:
        plan = self._plan
        soft, hard = partial(self._time_limit, TimeLimit.SOFT), partial(self._time_limit, TimeLimit.HARD)
        watchdog = Watchdog(plan.clock.monotonic, soft, hard)
        self._watchdog = watchdog
        shop = ProcessContext(
            plan.engines,
            plan.layout,
            plan.redis,
            plan.clock,
            self._observer,
            watchdog,
            plan.state,
            self._presence.name if self._presence is not None else "",
            book,
            threading.Lock(),
            self._leaving,
            self._publishing,
            self._relays,
            self._point,
        )
        distrusted = self._roster.distrust_before()
        for consumer in plan.consumers:
            crew = ConsumerRuntime(consumer, plan.adapters[consumer.broker], shop)
            crew.consumer.intake.distrust_before = distrusted
            self._crews[consumer.name] = crew

    def _open_adapters(self) -> None:
        sink = ConsumerSink(self._crews)
        for name, adapter in self._plan.adapters.items():
            mine = [consumer for consumer in self._plan.consumers if consumer.broker == name]
            if not mine:
                continue
            adapter.open([consumer.subscription for consumer in mine], sink)
            for consumer in mine:
                self._observer.consumer_started(
                    consumer.name, consumer.subscription.topic, workers=consumer.workers
                )

    def _watch(self, until: Until | None) -> None:
        """Check once a second until stopped: leases, idleness, dead threads, a database that is silent."""
        monotonic, next_look = self._plan.clock.monotonic, 0.0
        ending = self._ending(until) if until is not None else None
        if until is not None:
            for crew in self._crews.values():
                crew.consumer.scheduler.hurry(until.idle.total_seconds())
        while not self._asked_to_stop(_TICK):
            if ending is not None and (code := ending.code(self._idle_for())) is not None:
                self._code = code
                return
            if monotonic() < next_look:
                continue
            next_look = monotonic() + _LOOK_EVERY
            self._look()
            if not all(crew.alive() for crew in self._crews.values()):
                self._clean = False
                return

    def _asked_to_stop(self, seconds: float) -> bool:
        try:
            self._stop.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _look(self) -> None:
        for crew in self._crews.values():
            crew.consumer.rest()
        self._standing.look()
        self._clock_watch.look()
        self._database_watch.look()
        extend_leases(self._plan, self._crews, self._observer)

    def _visit(self) -> None:
        """Do what takes statements: heartbeat, suspects, counts. Not in the main thread, which obeys signals."""
        self._pauses.look(at_once=self._breakers.look())
        self._standing.count()
        self._quietly("recording messages", partial(self._plan.record, self._signals.recorded))
        try:
            self._roster.still_here()
            for crew in self._crews.values():
                crew.refresh_suspects(there=self._signals.any(signals.SUSPECTS))
        except Exception as error:
            self._observer.failed("writing the heartbeat", error)

    def _ending(self, until: Until) -> Ending:
        return Ending(
            until,
            self._plan.clock,
            self._retries,
            self._standing.rows,
            self._parked,
            self._unsent,
            self._observer.still_runs,
        )

    def _parked(self) -> dict[str, int]:
        """Return the number of parked messages in the ledger; 1 where it cannot be read."""
        found = {}
        for name, crew in self._crews.items():
            if crew.parked is not None:
                count = self._quietly(f"counting the parked messages of {name}", crew.parked.count)
                found[name] = 1 if count is None else count
        return found

    def _unsent(self) -> int:
        """Return the number of outbox rows that are still to be sent; 1 where the ledger cannot be read."""
        counts = [self._quietly("counting the outbox", relay.unsent) for relay in self._relays]
        return sum(1 if count is None else count for count in counts)

    def _idle_for(self) -> float:
        """Return the seconds since the last message arrived or ran; time before the brokers were open does not count."""
        if any(relay.waiting() for relay in self._relays):
            return 0.0
        running_for = self._plan.clock.monotonic() - self._running_since
        return min([running_for, *(crew.consumer.idle_for() for crew in self._crews.values())])

    def _drain(self) -> None:
        """Receive no more, let running work finish, return the rest, sign off."""
        clock, times = self._plan.clock, StopTimes.of(self._plan.grace)
        started = clock.monotonic()
        self._phase = Phase.DRAINING
        self._point("draining")
        self._observer.draining(times.handlers)
        finished, returned = self._wind_down(started + times.handlers.total_seconds())
        self._clean = self._clean and finished
        self._observer.drained(seconds=clock.monotonic() - started, returned=returned)
        self._point("shutdown")
        self._close(started + times.closed.total_seconds())
        self._observer.stopped(clean=self._clean)

    def _abandon(self) -> None:
        """Clean up after a failed start: running work is finished, everything opened is closed."""
        started, times = self._plan.clock.monotonic(), StopTimes.of(self._plan.grace)
        self._wind_down(started + times.handlers.total_seconds())
        self._close(started + times.closed.total_seconds())

    def _wind_down(self, until: float) -> tuple[bool, int]:
        """End the workers; returns whether all ended by then, and the number of messages returned unstarted."""
        for consumer in self._plan.consumers:
            pause = self._plan.adapters[consumer.broker].pause
            self._quietly(f"pausing {consumer.name}", lambda pause=pause, name=consumer.name: pause(name))  # type: ignore[misc]
        for crew in self._crews.values():
            crew.stop()
        finished = [crew.join(self._seconds_until(until)) for crew in self._crews.values()]
        # A worker that still waits for a broker or a handler must not delay the end of the process.
        self._leaving.set()
        returned = 0
        for name, crew in self._crews.items():
            returned += self._quietly(f"returning what waits for {name}", partial(self._hand_back, crew)) or 0
        return all(finished), returned

    @staticmethod
    def _hand_back(crew: ConsumerRuntime) -> int:
        return crew.hand_back(crew.consumer.scheduler.close())

    def _seconds_until(self, moment: float) -> float:
        return max(0.0, moment - self._plan.clock.monotonic())

    def _close(self, until: float) -> None:
        """Close everything that may be open; errors are reported and do not prevent the next step."""
        self._database_watch.stop()

        def left() -> timedelta:
            return timedelta(seconds=self._seconds_until(until))

        for relay in self._relays:
            self._quietly("sending what was published last", lambda relay=relay: relay.stop(grace=left()))  # type: ignore[misc]
        for name, adapter in self._plan.adapters.items():
            self._quietly(f"closing broker {name}", lambda adapter=adapter: adapter.close(grace=left()))  # type: ignore[misc]
        for name, crew in self._crews.items():
            self._quietly(f"removing the flight recorders of {name}", crew.close)
        if self._presence is not None:
            self._quietly("removing the flight recorders", self._presence.leave)
        for upkeep in self._upkeep:
            stop = upkeep.stop
            self._quietly("stopping upkeep", lambda stop=stop: stop(grace=left()))  # type: ignore[misc]
        if self._watchdog is not None:
            self._watchdog.stop()
        self._quietly("storing what was recorded", self._plan.record)
        self._quietly("signing off in the ledger", self._roster.sign_off)
        if self._plan.redis is not None:
            self._quietly("closing Redis", self._plan.redis.close)
        self._quietly("waiting for the last look at the database", lambda: self._database_watch.join(left()))
        for engine in self._plan.engines:
            self._quietly("closing the database", engine.dispose)
        self._phase = Phase.STOPPED
        self._monitor.close()

    def _quietly(self, doing: str, work: Callable[[], Result]) -> Result | None:
        try:
            return work()
        except Exception as error:
            self._observer.failed(doing, error)
            return None

    def state(self) -> AppState:
        """Return the state that health and metrics show; cheap, from any thread."""
        return AppState(
            self._phase,
            self._standing.rows(),
            self._standing.outbox,
            self._clock_watch.skew(),
            self._database_watch.silence(),
            self._standing.ledger_bytes,
        )

    def _time_limit(self, which: TimeLimit, consumer: str) -> None:
        plan = next(plan for plan in self._plan.consumers if plan.name == consumer)
        limit = plan.soft_limit if which is TimeLimit.SOFT else plan.hard_limit
        self._observer.time_limit(consumer, None, which, limit or timedelta(0))


def _present(state: Path) -> ProcessLock:
    try:
        return ProcessLock(state)
    except OSError as error:
        text = f"the folder {state}, where flight recorders are kept, cannot be written: {error.strerror}"
        raise ConfigError([f"{text} – write state: and a folder that can"]) from error


def create_tables(plan: AppPlan) -> list[str]:
    """Create missing tables in the app's databases; returns the names of the tables that were created.

    Raises:
        InfrastructureError, LedgerError: a database is unreachable or refuses.
    """
    created: list[str] = []
    for engine in plan.engines:
        probe.prove(engine)
        created += schema.create(engine, plan.tables())
        begin_all(engine, plan.generations)
    shards.create(plan.engines, plan.name, plan.layout)
    return created
