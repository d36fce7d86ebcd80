"""Event loop of a consumer with an async handler: many messages in flight, each settled separately."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, RETURNED, Outcome, Verdict
from oncemq.engine.base.items import make_items
from oncemq.engine.base.strategy_chain import Failed
from oncemq.engine.consumer.consumer import Consumer
from oncemq.engine.crash.flight_recorder import IDLE, AnyRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.settlement.settler import Settler
from oncemq.engine.workers.direct_unit import before, handle_async, load_waits
from oncemq.engine.workers.outcome_writer import LoopOutcomes, OutcomeWriter
from oncemq.engine.workers.placement import Placement
from oncemq.engine.workers.worker import ShardRuntime, TakeResult, Trouble
from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.observe.events import TimeLimit
from oncemq.observe.logs import now_handling

_TAKE_TIMEOUT = 0.2
_THREADS_BESIDES = 4
"""Threads for waiting, taking and settling, while every message in flight may be in a strategy's hook."""


@dataclass(frozen=True, slots=True)
class InFlightSlot:
    """Resources of one message in flight: its flight recorder, and its slot for the watchdog."""

    recorder: AnyRecorder
    slot: TimeLimitSlot


_Reserved = tuple[Unit, Trouble | None]
"""What was reserved for one message, and why it cannot run."""


@dataclass(slots=True, eq=False)
class _KeyRun:
    """Messages of one key that were taken together, and run one after the other."""

    deliveries: list[Delivery]
    hands: TakeResult = field(default_factory=TakeResult)


@dataclass(slots=True)
class _Finished:
    """Outcomes that can be settled: verdicts with their seconds, units to release, and keys to release afterwards."""

    verdicts: list[tuple[Delivery, Verdict]] = field(default_factory=list)
    seconds: float = 0.0
    over: list[_KeyRun] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.verdicts or self.over or self.units)


class AsyncWorker:
    """Keeps as many messages in flight as it has seats, in its own event loop.

    Args:
        consumer: waiting messages and progress.
        settler: settles with the broker.
        seats: one for each message that may be in flight.
        alone: held while a crash suspect runs, so that no two run at once in this process.
        failed: called with errors that change nothing.
        tracks: strategies, handler and finisher, by place; hooks may block, so they run in threads.
        placement: where messages run.
    """

    def __init__(
        self,
        consumer: Consumer,
        settler: Settler,
        seats: list[InFlightSlot],
        alone: threading.Lock,
        failed: Failed,
        tracks: Sequence[ShardRuntime],
        placement: Placement,
    ) -> None:
        self._consumer = consumer
        self._settler = settler
        self._seats = len(seats)
        self._free = list(seats)
        self._alone = alone
        self._failed = failed
        self._track = placement.select(tracks)
        self._outcomes: dict[OutcomeWriter, LoopOutcomes] = {}
        limit = consumer.plan.soft_limit
        self._soft = limit.total_seconds() if limit is not None else None
        self._finished = _Finished()
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None
        self._leaving = False
        self._changed: asyncio.Event
        self._freed: asyncio.Event
        self._blocking = consumer.plan.handler.publishes or any(track.chain.has_hooks for track in tracks)

    def loop(self) -> None:
        """Work until stopped; messages in flight are finished first."""
        asyncio.run(self._main())

    async def _main(self) -> None:
        threads = ThreadPoolExecutor(self._seats + _THREADS_BESIDES, f"oncemq-{self._consumer.plan.name}")
        asyncio.get_running_loop().set_default_executor(threads)
        self._changed, self._freed = asyncio.Event(), asyncio.Event()
        settling = asyncio.create_task(self._settle_loop())
        gate = self._consumer.gate
        while not gate.stopped and self._broken is None:
            await asyncio.to_thread(gate.wait)
            if not self._free:
                await self._wait_for_seat()
                continue
            taken = await asyncio.to_thread(self._consumer.scheduler.take, len(self._free), _TAKE_TIMEOUT)
            if self._consumer.doubtful(taken):
                await asyncio.to_thread(self._consumer.doubt, taken)
            self._start(taken)
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._leaving = True
        self._changed.set()
        await settling
        if self._broken is not None:
            raise self._broken

    def step(self, runner: asyncio.Runner) -> bool:
        """Work once, on messages that are ready now; returns whether there were any.

        Hooks of strategies run in this thread, too.

        Args:
            runner: its event loop runs the handlers.
        """
        taken = self._consumer.scheduler.take(len(self._free), 0.0)
        if taken:
            self._blocking = False
            if self._consumer.doubtful(taken):
                self._consumer.doubt(taken)
            runner.run(self._run_taken(taken))
            finished, self._finished = self._finished, _Finished()
            if self._broken is not None:
                raise self._broken
            self._settle(finished)
        return bool(taken)

    async def _run_taken(self, taken: list[Delivery]) -> None:
        self._changed, self._freed = asyncio.Event(), asyncio.Event()
        self._start(taken)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _wait_for_seat(self) -> None:
        self._freed.clear()
        if not self._free and self._broken is None:
            await self._freed.wait()

    def _start(self, taken: list[Delivery]) -> None:
        """Start one task per key: its messages run one after the other; the first ones are reserved together."""
        self._consumer.started(taken)
        by_key: dict[str, list[Delivery]] = {}
        for delivery in taken:
            by_key.setdefault(delivery.key, []).append(delivery)
        together: dict[OutcomeWriter, list[tuple[_KeyRun, InFlightSlot]]] = {}
        for deliveries in by_key.values():
            keyrun, seat = _KeyRun(deliveries), self._free.pop()
            writer = self._track(deliveries[0]).writer
            if writer is not None and self._may_start(deliveries[0]):
                together.setdefault(writer, []).append((keyrun, seat))
            else:
                self._spawn(self._key(keyrun, seat))
        for group in together.values():
            self._spawn(self._reserved(group))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _may_start(self, delivery: Delivery) -> bool:
        consumer = self._consumer
        return (
            not delivery.suspect
            and consumer.judge_unrun(delivery) is None
            and consumer.must_wait(delivery) is None
        )

    async def _reserved(self, group: list[tuple[_KeyRun, InFlightSlot]]) -> None:
        """Reserve the first message of each key, at once, then start the tasks."""
        firsts = [keyrun.deliveries[0] for keyrun, _ in group]
        units = [self._consumer.unit([first], float("inf")) for first in firsts]
        try:
            troubles = await asyncio.to_thread(self._track(firsts[0]).chain.reserve_all, units)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            for keyrun, seat in group:
                self._break(keyrun, seat, error)
            return
        for (keyrun, seat), unit, trouble in zip(group, units, troubles, strict=True):
            self._spawn(self._key(keyrun, seat, (unit, trouble)))

    async def _key(self, keyrun: _KeyRun, seat: InFlightSlot, reserved: _Reserved | None = None) -> None:
        clock, hands = self._consumer.clock.monotonic, keyrun.hands
        try:
            for delivery in keyrun.deliveries:
                began = clock()
                verdict = RETURNED if hands.held else await self._one(delivery, seat, reserved)
                reserved = None
                verdict = self._consumer.immediately(delivery, verdict)
                hands.keep(delivery, verdict, self._settler.held_too_long)
                self._finished.verdicts.append((delivery, verdict))
                self._finished.seconds = max(self._finished.seconds, clock() - began)
                self._changed.set()
        except asyncio.CancelledError:
            # The loop ends for another reason, of which these messages are innocent.
            raise
        except BaseException as error:
            self._break(keyrun, seat, error)
        else:
            self._end(keyrun, seat)

    def _break(self, keyrun: _KeyRun, seat: InFlightSlot, error: BaseException) -> None:
        self._consumer.charge(keyrun.deliveries)
        self._broken = error
        self._end(keyrun, seat)

    def _end(self, keyrun: _KeyRun, seat: InFlightSlot) -> None:
        # The key is released only now: none of its messages may run concurrently with another.
        self._finished.over.append(keyrun)
        self._free.append(seat)
        self._changed.set()
        self._freed.set()

    async def _one(self, delivery: Delivery, seat: InFlightSlot, reserved: _Reserved | None) -> Verdict:
        if reserved is None:
            unrun = self._consumer.judge_unrun(delivery) or self._consumer.must_wait(delivery)
            if unrun is not None:
                return unrun
        if delivery.envelope is not None:
            seat.recorder.begin([delivery.envelope])
        if not delivery.suspect:
            return await self._run(delivery, seat, reserved)
        await asyncio.to_thread(self._alone.acquire)
        try:
            return await self._run(delivery, seat, reserved)
        finally:
            self._alone.release()

    async def _run(self, delivery: Delivery, seat: InFlightSlot, reserved: _Reserved | None) -> Verdict:
        track, shards = self._track(delivery), self._consumer.shards
        seat.recorder.index[0] = 1
        unit, trouble = reserved or (self._consumer.unit([delivery], float("inf")), None)
        try:
            if reserved is None:
                trouble = await self._blocked(lambda: track.chain.reserve(unit))
            if trouble is not None:
                return self._troubled(delivery, trouble)
            verdict = unit.verdicts.get(delivery) or await self._handle(unit, delivery, seat)
        except (StrategyBug, InfrastructureError) as error:
            return self._troubled(delivery, error)
        else:
            if shards is not None:
                shards.succeeded(delivery)
            return verdict
        finally:
            seat.recorder.index[0] = IDLE
            if track.writer is None:
                await self._blocked(lambda: track.chain.release(unit, self._failed))
            else:
                self._finished.units.append(unit)

    async def _handle(self, unit: Unit, delivery: Delivery, seat: InFlightSlot) -> Verdict:
        plan, track = self._consumer.plan, self._track(delivery)
        item = make_items([delivery], plan.reader)[0]
        run = track.finisher.run_of(unit, item)
        if track.writer is not None and not load_waits(track.chain, run):
            before(track.chain, run, item)
        else:
            await self._blocked(lambda: before(track.chain, run, item))
        ran = item.verdict is PROCEED
        if ran:
            now_handling((plan.name, item.envelope))
            seat.slot.started = self._consumer.clock.monotonic()
            item.verdict = await handle_async(
                track.handler, run, item, self._soft, lambda: self._overdue(delivery)
            )
            seat.slot.started = 0.0
            now_handling(None)
        if ran and track.writer is not None:
            await self._save(track.writer, track, run, item, seat)
        else:
            await self._blocked(lambda: track.finisher.finish(run, item, ran=ran))
        for follower in run.follow:
            self._consumer.scheduler.put([follower])
        return item.verdict or RETURNED

    async def _save(
        self, writer: OutcomeWriter, track: ShardRuntime, run: Run, item: Item, seat: InFlightSlot
    ) -> None:
        if run.outgoing and not track.chain.stores_outgoing:
            await asyncio.to_thread(track.finisher.prepare, run, item)
        else:
            track.finisher.prepare(run, item)
        # From here on it waits for others: if the process dies, it is none of its doing.
        seat.recorder.index[0] = IDLE
        outcomes = self._outcomes.get(writer)
        if outcomes is None:
            outcomes = self._outcomes[writer] = LoopOutcomes(writer)
        await outcomes.save(run, item)

    def _overdue(self, delivery: Delivery) -> None:
        plan = self._consumer.plan
        if plan.soft_limit is not None:
            self._consumer.observers.time_limit(plan.name, delivery, TimeLimit.SOFT, plan.soft_limit)

    async def _blocked(self, work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work) if self._blocking else work()

    def _troubled(self, delivery: Delivery, trouble: Trouble) -> Verdict:
        consumer = self._consumer
        if consumer.shards is None or not isinstance(trouble, InfrastructureError):
            consumer.pause(trouble)
            return RETURNED
        consumer.shards.failed(delivery, trouble, 0.0)
        return consumer.must_wait(delivery) or RETURNED

    async def _settle_loop(self) -> None:
        """Settle finished messages, all at once, while the next messages run."""
        finished = _Finished()
        try:
            while self._finished or not self._leaving:
                if not self._finished:
                    self._changed.clear()
                    await self._changed.wait()
                finished, self._finished = self._finished, _Finished()
                await asyncio.to_thread(self._settle, finished)
        except BaseException as error:
            # Whatever ends this task must end the worker, too: it would take messages and never settle them.
            if not isinstance(error, asyncio.CancelledError):
                self._consumer.charge([delivery for delivery, _ in finished.verdicts])
            self._broken = error
            self._freed.set()

    def _settle(self, finished: _Finished) -> None:
        for unit in finished.units:
            self._track(unit.deliveries[0]).chain.release(unit, self._failed)
        pairs = finished.verdicts
        self._consumer.observers.judged(self._consumer.plan.name, pairs)
        self._settler.settle(pairs)
        for delivery, verdict in pairs:
            if delivery.suspect and verdict.acknowledged:
                self._consumer.ended(delivery)
        for keyrun in finished.over:
            self._settler.put_off(keyrun.hands.put_off)
            self._consumer.scheduler.done(keyrun.deliveries, keyrun.hands.back, keyrun.hands.sleep)
            self._consumer.finished(keyrun.deliveries)
        if pairs:
            self._tell(pairs, finished.seconds)

    def _tell(self, pairs: list[tuple[Delivery, Verdict]], seconds: float) -> None:
        counts = Counter(verdict.outcome for _, verdict in pairs)
        if len(pairs) > counts[Outcome.RETURNED] + counts[Outcome.DEFER]:
            self._consumer.progressed()
        self._consumer.observers.unit_done(
            self._consumer.plan.name, counts, size=len(pairs), seconds=seconds, rescue=None
        )
