"""Builds each consumer from its plan: workers, recorders, chains and settlers in running threads."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

from oncemq.contracts.adapter import Adapter, DeadLetterRequest, SettleFailed
from oncemq.contracts.checks import Effects
from oncemq.contracts.strategy import UpkeepTask
from oncemq.engine.base.answers import answering
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.consumer.claim_scheduler import make_scheduler
from oncemq.engine.consumer.consumer import Consumer
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.crash.flight_recorder import AnyRecorder, Crash, NoRecorder, OnDeadRecorder, Recorder
from oncemq.engine.crash.suspects import collect_for, open_recorder, tell
from oncemq.engine.crash.time_limits import TimeLimits, TimeLimitSlot
from oncemq.engine.parking.instance_messages import settling_of
from oncemq.engine.parking.parking_strategies import parking_of, with_parking
from oncemq.engine.parking.settlement_router import dropping
from oncemq.engine.parking.sharded import whole
from oncemq.engine.plan import ConsumerPlan
from oncemq.engine.process_context import ProcessContext
from oncemq.engine.rates.rate_limit import RateLimit, lowest
from oncemq.engine.rates.shared_rate import limit_of
from oncemq.engine.settlement.background_settler import BackgroundSettler
from oncemq.engine.settlement.ledger_dead_letters import KeptLetters, note_failures
from oncemq.engine.settlement.on_dead import OnDead
from oncemq.engine.settlement.settler import Settler
from oncemq.engine.transaction.async_call import awaiting
from oncemq.engine.workers.async_worker import AsyncWorker, InFlightSlot
from oncemq.engine.workers.direct_unit import DirectRunner, Finisher
from oncemq.engine.workers.loop_workers import (
    LoopWorker,
    LoopWorkers,
    async_twins,
    close_engines,
    unblock,
    work_once,
)
from oncemq.engine.workers.outcome_writer import OutcomeWriter
from oncemq.engine.workers.parked_sweep import sweeps
from oncemq.engine.workers.placement import Placement
from oncemq.engine.workers.threads import Threads
from oncemq.engine.workers.unit_runners import Told, on_dead_runners, transactional
from oncemq.engine.workers.worker import Execute, ShardRuntime, Worker, by_unit
from oncemq.errors import ConfigError
from oncemq.message.envelope import Delivery

_LONGEST_DIRECT_UNIT = 0.01
"""Seconds; external effects repeat if a process dies before settling, so it settles soon."""

_SEATS = 100_000
"""Numbers of recorders for each topic of a consumer; the topics have one scope, and a recorder belongs to one worker."""


class ConsumerRuntime:
    """One consumer and its threads."""

    def __init__(self, plan: ConsumerPlan, adapter: Adapter, shop: ProcessContext) -> None:
        self._shop = shop
        self._recorders: list[AnyRecorder] = []
        self._commit_is_told = False
        self._told = Told(self._infrastructure_failed, self._lane_changed, self._warn_of_commit)
        self._workers = Threads(plan.name, shop.observers.failed, shop.clock)
        self._settling = Threads(f"{plan.name}-failures", shop.observers.failed, shop.clock)
        parked = [
            parking_of(plan, engine, shop.clock, adapter, self._understand, self._queued, self._running)
            for engine in shop.engines
        ] or [None]
        self._parked = [place for place in parked if place is not None]
        self.parked = whole(self._parked, shop.layout)
        self._chains = [
            Chain(
                with_parking(
                    part.strategies,
                    place,
                    hold_key=plan.hold_key,
                    hold_dead=plan.hold_dead,
                    transactional=plan.effects is Effects.DATABASE,
                )
            )
            for parts in plan.chains
            for part, place in zip(parts, parked, strict=True)
        ]
        self._parts = [part for parts in plan.chains for part in parts]
        self._placement = Placement(shop.layout, plan.chain_of_route, in_order=plan.hold_dead is not None)
        self.chain = self._chains[0]
        self._writers: list[OutcomeWriter | None] = [None for _ in self._chains]
        self.consumer = Consumer(
            plan,
            adapter,
            shop.clock,
            shop.observers,
            make_scheduler(
                shop.clock,
                one_per_key=any(each.one_per_key for each in self._chains),
                fetches=plan.claims is not None,
            ),
            PauseGate(shop.clock),
            shop.point,
            self._forget,
            shop.layout,
        )
        self._rate = limit_of(plan.rate, shop.redis, plan.scope, shop.clock, shop.observers.warned)
        self.limit_rate(None)
        self._twins = async_twins(plan, shop.engines)
        self._on_dead = self._for_the_dead() if plan.on_dead is not None else None
        self.consumer.learn_of_deaths = self.learn_of_deaths
        self.consumer.charge = self._charge
        self._aftermath = BackgroundSettler(self._settler(), self.consumer, shop.observers.failed)
        self.refresh_suspects()

    def _understand(self, delivery: Delivery) -> None:
        self.consumer.intake.understand(delivery)

    def _queued(self) -> list[Delivery]:
        return self.consumer.not_begun()

    def _running(self) -> list[Delivery]:
        return self.consumer.running()

    def start(self) -> None:
        """Start the workers; they wait for deliveries."""
        plan = self.consumer.plan
        if plan.effects is not Effects.DATABASE:
            self._writers = [
                self._finisher(place).writer(self._shop.clock) if chain.ends_together else None
                for place, chain in enumerate(self._chains)
            ]
        if plan.handler.is_async:
            loops = [(self._loop_workers() if self._twins else self._async_worker()).loop]
        else:
            loops = [self._worker(number).loop for number in range(plan.workers)]
        self._settling.start(self._aftermath.loop)
        for writer in filter(None, self._writers):
            self._settling.start(writer.loop)
        if (fetch := self.consumer.scheduler.loop) is not None:
            self._settling.start(fetch)
        for loop in loops:
            self._workers.start(loop)

    def stepper(self, runner: asyncio.Runner) -> Callable[[], bool]:
        """Return a function that does a worker's next work in the caller's thread, instead of `start`.

        It returns whether there was any: messages that are ready now, as many as a unit may have.

        Args:
            runner: runs async handlers.
        """
        plan = self.consumer.plan
        if plan.handler.is_async and not self._twins:
            return partial(self._async_worker().step, runner)
        worker = self._worker(0)
        most = self._batch_limit()
        self.consumer.scheduler.hurry(0.0)
        work = partial(work_once, runner, worker) if self._twins else worker.step

        def step() -> bool:
            worked = work(most)
            self._aftermath.catch_up()
            return worked

        return step

    def stop(self) -> None:
        """Let workers finish their current messages, and take no more."""
        self.consumer.scheduler.end()
        self.consumer.gate.stop()

    def limit_rate(self, limit: RateLimit | None) -> None:
        """Take no more than this from now on, and than what is declared; None = only the latter."""
        self.consumer.scheduler.rate_limit = lowest(self._rate, limit)

    def join(self, seconds: float) -> bool:
        """Wait for the workers; returns whether all have ended."""
        until = self._shop.clock.monotonic() + seconds
        ended = self._workers.join(until)
        # Not earlier: the workers' last failures must be settled in order, too.
        self._aftermath.close()
        for writer in filter(None, self._writers):
            writer.close()
        return self._settling.join(until) and ended

    def alive(self) -> bool:
        """Return whether every worker is running."""
        return self._workers.alive() and self._settling.alive()

    def close_loop(self, runner: asyncio.Runner) -> None:
        """Close what belongs to the event loop of a stepper."""
        runner.run(close_engines(self._twins))

    def close(self) -> None:
        """Remove the flight recorders: the process ends normally, even if a worker does not."""
        ended = self._workers.ended()
        for recorder in self._recorders:
            if ended:
                recorder.close()
            else:
                recorder.disown()

    def hand_back(self, left: Sequence[Delivery]) -> int:
        """Return deliveries to the broker that were never started, and settle those that failed; returns their number."""
        settler, failed = self._settler(), dict(self.consumer.failed_among(left))
        settler.settle(list(failed.items()))
        settler.hand_back([delivery for delivery in left if delivery not in failed])
        return len(left)

    def upkeep(self, shard: int) -> list[UpkeepTask]:
        """Return the background tasks of this consumer on one shard, in every process."""
        place = self._parked[shard] if self._parked else None
        return sweeps(place, self.consumer.gate, self.consumer.scheduler)

    def refresh_suspects(self, *, there: bool = True) -> None:
        """Load the messages on which processes have died, in other processes too; not if none is known nor `there`."""
        if self._shop.book is not None and (there or self.consumer.intake.suspects):
            self.consumer.intake.suspects = self._shop.book.load(self.consumer.plan.scope)

    def learn_of_deaths(self, identities: Collection[str]) -> None:
        """Read the flight recorders of processes that have just died before these messages run, and load the suspects."""
        shop = self._shop
        if shop.state is not None and shop.book is not None:
            scope = self.consumer.plan.scope
            crashes = collect_for(shop.state, shop.book, shop.process, scope, identities)
            tell(crashes, shop.book, shop.observers)
        self.refresh_suspects()

    def _loop_workers(self) -> LoopWorkers:
        """Return the workers of an async handler in transactions: the same ones, in greenlets of one event loop."""
        for chain in self._chains:
            unblock(chain)
        workers = self.consumer.plan.workers
        return LoopWorkers(
            self.consumer,
            lambda: [self._worker(number, LoopWorker) for number in range(workers)],
            self._twins,
        )

    def _worker(self, number: int, kind: type[Worker] = Worker) -> Worker:
        plan = self.consumer.plan
        recorder = self._recorder(number)
        slot = TimeLimitSlot(recorder.overrun)
        # An event loop enforces the soft limit itself; a handler that blocks the loop needs the hard one.
        soft = None if self._twins else plan.soft_limit
        self._shop.watchdog.watch(plan.name, slot, TimeLimits(soft, plan.hard_limit))
        unit_time = plan.unit_time.total_seconds()
        if plan.effects is Effects.DATABASE:
            pause = partial(kind.pause, self.consumer.gate)
            executes = [self._transactional(slot, recorder, place, pause) for place in self._places()]
        else:
            executes = [self._direct(slot, recorder, place) for place in self._places()]
            unit_time = min(unit_time, _LONGEST_DIRECT_UNIT)
        # A held key must not be released before the failed message is parked at its head.
        settles = self._settler() if plan.hold_key else self._aftermath
        execute, limit = by_unit(executes, self._placement), self._batch_limit()
        return kind(self.consumer, execute, settles, self._shop.alone, unit_time, limit, self._placement)

    def _places(self) -> range:
        return range(len(self._chains))

    def _shard(self, place: int) -> int:
        return place % len(self.consumer.plan.parts)

    def _batch_limit(self) -> int:
        limits = [chain.max_batch for chain in self._chains if chain.max_batch is not None]
        return min([self.consumer.plan.batch_limit, *limits])

    def _warn_of_commit(self) -> None:
        if self._commit_is_told:
            return
        self._commit_is_told = True
        self._shop.observers.warned(
            f"the handler of {self.consumer.plan.name} calls session.commit(), which only flushes: the framework commits the "
            "effect together with the record of its message; leave the call out"
        )

    def _transactional(
        self, slot: TimeLimitSlot, recorder: AnyRecorder, place: int, pause: Callable[[float], None]
    ) -> Execute:
        plan, shop = self.consumer.plan, self._shop
        chain, handler, shard = self._chains[place], self._parts[place].handler, self._shard(place)
        if not shop.engines:
            raise ConfigError([f"consumer {plan.name!r} has effects: database, but the app has no database"])
        if self._twins:
            handler = awaiting(
                handler, slot, plan.soft_limit, partial(shop.observers.time_limit, plan.name, None)
            )
        return transactional(
            plan,
            shop,
            shard,
            (self._twins or shop.engines)[shard],
            chain,
            handler,
            recorder,
            slot,
            self.consumer.lanes[shard],
            self._told,
            pause,
        )

    def _direct(self, slot: TimeLimitSlot, recorder: AnyRecorder, place: int) -> Execute:
        plan, shop = self.consumer.plan, self._shop
        runner = DirectRunner(
            self._chains[place],
            self._parts[place].handler,
            plan.reader,
            recorder,
            slot,
            shop.clock,
            shop.observers.failed,
            self._finisher(place),
            self._writers[place],
        )
        return runner.execute

    def _finisher(self, place: int) -> Finisher:
        leaving, shard = self._shop.leaving, self._shard(place)
        return Finisher(
            self._chains[place],
            self._shop.observers.failed,
            partial(self.consumer.unfinished, shard),
            leaving.is_set,
            leaving.wait,
            self._shop.publishing.send,
            self._shop.relays[shard] if self._shop.relays else None,
        )

    def _async_worker(self) -> AsyncWorker:
        plan, shop = self.consumer.plan, self._shop
        recorders = [self._recorder(number) for number in range(plan.workers)]
        seats = [InFlightSlot(recorder, TimeLimitSlot(recorder.overrun)) for recorder in recorders]
        for seat in seats:
            # The soft limit is enforced by the event loop; a handler that blocks the loop needs the hard one.
            shop.watchdog.watch(plan.name, seat.slot, TimeLimits(None, plan.hard_limit))
        tracks = [
            ShardRuntime(chain, part.handler, self._finisher(place), self._writers[place])
            for place, (chain, part) in enumerate(zip(self._chains, self._parts, strict=True))
        ]
        return AsyncWorker(
            self.consumer,
            self._settler(),
            seats,
            shop.alone,
            shop.observers.failed,
            tracks,
            self._placement,
        )

    def _recorder(self, number: int, kind: type[Recorder] = Recorder) -> AnyRecorder:
        state, plan = self._shop.state, self.consumer.plan
        recorder: AnyRecorder = (
            NoRecorder()
            if state is None
            else open_recorder(state, self._shop.process, plan.scope, plan.place * _SEATS + number, kind)
        )
        self._recorders.append(recorder)
        return recorder

    def _settler(self) -> Settler:
        plan, shop = self.consumer.plan, self._shop
        return Settler(
            plan.name,
            answering(
                settling_of(plan, self.consumer.adapter, self.parked, shop.observers),
                plan.strategies,
                partial(shop.observers.answered, plan.name),
            ),
            plan.retry_of,
            shop.clock,
            shop.observers,
            self._note_dead,
            # Not before the grace period is over: committed messages that are not acknowledged would be redelivered.
            shop.leaving.is_set,
            # Not the gate's sleep, which a drain ends: an unavailable broker must not be polled without pause.
            shop.leaving.wait,
            shop.point,
            plan.redact,
            self._keeper(),
            plan.keep,
            self._note,
            self.consumer.intake.signed,
            self._on_dead,
        )

    def _for_the_dead(self) -> OnDead:
        """Return what runs the consumer's `on_dead` function."""
        plan, shop, layout = self.consumer.plan, self._shop, self._shop.layout
        recorder = self._recorder(plan.workers, OnDeadRecorder)
        executes = on_dead_runners(plan, shop, recorder, self._told)
        return OnDead(
            plan.scope,
            lambda shard, unit: executes[shard](unit),
            (lambda _: 0) if layout is None else layout.shard_of,
            shop.clock,
            lambda: self.consumer.intake.suspects,
            shop.leaving.is_set,
            shop.leaving.wait,
            shop.observers.failed,
        )

    def _keeper(self) -> Callable[[Sequence[DeadLetterRequest]], Sequence[SettleFailed]] | None:
        engines, clock = self._shop.engines, self._shop.clock
        if not engines:
            return None
        drop = dropping(self.consumer.adapter, self.parked)
        return KeptLetters(self.consumer.plan.scope, engines[0], clock, drop).keep

    def _note_dead(self, dead: Sequence[tuple[Delivery, str, str]]) -> None:
        for delivery, _, _ in dead:
            self.consumer.ended(delivery)
        self._note(dead)

    def _note(self, failed: Sequence[tuple[Delivery, str, str]]) -> None:
        """Write failed messages and their outcome into the history."""
        shop = self._shop
        note_failures(
            self.consumer.plan.scope, shop.engines, shop.layout, shop.clock, failed, shop.observers.failed
        )

    def _infrastructure_failed(self, tries: int, pause: float, error: BaseException) -> None:
        self._shop.observers.infrastructure_failed(
            self.consumer.plan.name, tries=tries, next_in=timedelta(seconds=pause), error=error
        )

    def _lane_changed(self, on: bool, error: BaseException | None) -> None:
        self._shop.observers.exclusive_units(self.consumer.plan.name, on=on, error=error)

    def _charge(self, deliveries: Sequence[Delivery]) -> None:
        """Treat the deliveries held by a failed thread as if the process had died: they run alone, and each crash counts."""
        plan, book = self.consumer.plan, self._shop.book
        held = tuple(
            (delivery.key, delivery.envelope.identity)
            for delivery in deliveries
            if delivery.envelope is not None
        )
        if book is None or not held:
            return
        crash = Crash(plan.scope, held, known=len(held) == 1)
        try:
            book.note(crash)
            tell([crash], book, self._shop.observers)
        except Exception as error:
            self._shop.observers.failed("recording the messages of a failed thread", error)

    def _forget(self, identity: str) -> None:
        if self._shop.book is not None:
            self._shop.book.clear(self.consumer.plan.scope, [identity])
