"""One event loop of a consumer with an async handler: many messages in flight, each settled on its own."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from oncemq.errors import InfrastructureError, StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.observe.events import RescueStep
from oncemq.run.attempt import make_items
from oncemq.run.chain import Chain
from oncemq.run.consumer import Consumer
from oncemq.run.direct import after, before, handle_async
from oncemq.run.recorder import IDLE, AnyRecorder
from oncemq.run.settle import Settler
from oncemq.run.transactional import Failed, release, reserve
from oncemq.run.worker import Trouble
from oncemq.unit import Run, Unit
from oncemq.verdict import PROCEED, RETURNED, Outcome, Verdict

_TAKE_TIMEOUT = 0.2


class AsyncWorker:
    """Keeps up to `plan.workers` messages in flight in an event loop of its own.

    Args:
        consumer: what waits and how it goes.
        chain: the strategies' hooks; they may block, so they run in threads.
        settler: tells the broker.
        recorders: one for each message that may be in flight.
        failed: told of errors that change nothing.
    """

    def __init__(
        self,
        consumer: Consumer,
        chain: Chain,
        settler: Settler,
        recorders: list[AnyRecorder],
        failed: Failed,
    ) -> None:
        self._consumer = consumer
        self._chain = chain
        self._settler = settler
        self._free = list(recorders)
        self._failed = failed
        limit = consumer.plan.soft_limit
        self._soft = limit.total_seconds() if limit is not None else None
        self._finished: list[tuple[Delivery, Verdict]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Event
        self._alone: asyncio.Lock
        self._blocking = bool(
            chain.reserves or chain.loads or chain.saves or chain.confirms or chain.releases
        )

    def loop(self) -> None:
        """Work until stopped; what is in flight then is finished first."""
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._changed = asyncio.Event()
        self._alone = asyncio.Lock()
        settling = asyncio.create_task(self._settle_loop())
        gate = self._consumer.gate
        while not gate.stopped:
            await asyncio.to_thread(gate.wait)
            if not self._free:
                await self._wait_for_change()
                continue
            taken = await asyncio.to_thread(self._consumer.scheduler.take, len(self._free), _TAKE_TIMEOUT)
            self._start(taken)
        while self._tasks:
            await asyncio.wait(self._tasks)
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)
        await self._settle_finished()

    def _start(self, taken: list[Delivery]) -> None:
        """Start one task per key: its messages run one after the other."""
        self._consumer.started(taken)
        by_key: dict[str, list[Delivery]] = {}
        for delivery in taken:
            by_key.setdefault(delivery.key, []).append(delivery)
        for deliveries in by_key.values():
            task = asyncio.create_task(self._key(deliveries, self._free.pop()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _key(self, deliveries: list[Delivery], recorder: AnyRecorder) -> None:
        held = False
        for delivery in deliveries:
            verdict = RETURNED if held else await self._one(delivery, recorder)
            held = held or verdict.holds_key
            self._finished.append((delivery, verdict))
        self._free.append(recorder)
        self._changed.set()

    async def _one(self, delivery: Delivery, recorder: AnyRecorder) -> Verdict:
        unrun = self._consumer.judge_unrun(delivery)
        if unrun is not None:
            return unrun
        if delivery.envelope is not None:
            recorder.begin([delivery.envelope])
        if not delivery.suspect:
            return await self._run(delivery, recorder)
        async with self._alone:
            return await self._run(delivery, recorder)

    async def _run(self, delivery: Delivery, recorder: AnyRecorder) -> Verdict:
        unit = Unit(self._consumer.plan.scope, [delivery], float("inf"))
        recorder.index[0] = 1
        try:
            trouble = await self._blocked(lambda: reserve(self._chain, unit))
            if trouble is not None:
                return self._troubled(trouble)
            return unit.verdicts.get(delivery) or await self._handle(unit, delivery)
        except (StrategyBug, InfrastructureError) as error:
            return self._troubled(error)
        finally:
            recorder.index[0] = IDLE
            await self._blocked(lambda: release(self._chain, unit, self._failed))

    async def _handle(self, unit: Unit, delivery: Delivery) -> Verdict:
        plan = self._consumer.plan
        item = make_items([delivery], plan.reader)[0]
        run = Run(unit, [item])
        await self._blocked(lambda: before(self._chain, run, item))
        if item.verdict is PROCEED:
            item.verdict = await handle_async(plan.handler, run, item, self._soft)
        await self._blocked(lambda: after(self._chain, run, item, self._failed))
        for follower in run.follow:
            self._consumer.scheduler.put(follower)
        return item.verdict or RETURNED

    async def _blocked(self, work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work) if self._blocking else work()

    def _troubled(self, trouble: Trouble) -> Verdict:
        self._consumer.pause(trouble)
        return RETURNED

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        if not self._free:
            await self._changed.wait()

    async def _settle_loop(self) -> None:
        while True:
            if not self._finished:
                self._changed.clear()
                await self._changed.wait()
            await self._settle_finished()

    async def _settle_finished(self) -> None:
        pairs, self._finished = self._finished, []
        if pairs:
            await asyncio.shield(asyncio.to_thread(self._settle, pairs))

    def _settle(self, pairs: list[tuple[Delivery, Verdict]]) -> None:
        back, sleep = [], {}
        for delivery, verdict in pairs:
            if verdict.outcome is Outcome.DEFER and verdict.delay is not None:
                sleep[delivery.key] = verdict.delay.total_seconds()
            if verdict.outcome in {Outcome.RETURNED, Outcome.DEFER}:
                back.append(delivery)
        self._settler.settle(pairs)
        for delivery, verdict in pairs:
            if delivery.suspect and not verdict.holds_key:
                self._consumer.ended(delivery)
        self._consumer.scheduler.done([delivery for delivery, _ in pairs], back, sleep)
        self._consumer.finished(delivery for delivery, _ in pairs)
        counts = Counter(verdict.outcome for _, verdict in pairs)
        if len(back) < len(pairs):
            self._consumer.progressed()
        steps: Counter[RescueStep] = Counter()
        self._consumer.observers.unit_done(
            self._consumer.plan.name, counts, size=len(pairs), seconds=0.0, rescue=steps or None
        )
