"""Runs the transactional workers of a consumer with an async handler on one event loop, each in a greenlet of its own.

A worker's code is the same as in a thread. Where it would block the thread – waiting for messages, settling, hooks that ask
Redis – the loop continues with other workers meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.util import greenlet_spawn

from oncemq.contracts.checks import Effects
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.consumer.consumer import Consumer
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.engine.plan import ConsumerPlan
from oncemq.engine.settlement.background_settler import Pairs, Settles
from oncemq.engine.transaction.async_call import in_thread
from oncemq.engine.workers.worker import TAKE_TIMEOUT, Worker
from oncemq.ledger.database.async_engine import make_async_twin
from oncemq.message.envelope import Delivery

_THREADS_PER_WORKER = 2
"""A worker waits in one thread; a handler may use `asyncio.to_thread` itself."""


class LoopWorkers:
    """The workers of a consumer, on one event loop.

    Args:
        consumer: the state that they share.
        workers: returns them; called inside the loop.
        engines: used by them alone; closed at the end.
    """

    def __init__(
        self, consumer: Consumer, workers: Callable[[], Sequence[Worker]], engines: Sequence[Engine]
    ) -> None:
        self._consumer = consumer
        self._workers = workers
        self._engines = engines

    def loop(self) -> None:
        """Work until stopped; units in progress are finished first."""
        asyncio.run(self._main())

    async def _main(self) -> None:
        workers = self._workers()
        threads = ThreadPoolExecutor(
            max(8, _THREADS_PER_WORKER * len(workers)), f"oncemq-{self._consumer.plan.name}"
        )
        asyncio.get_running_loop().set_default_executor(threads)
        tasks = [asyncio.create_task(greenlet_spawn(worker.loop)) for worker in workers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if not all(task.done() for task in tasks):
                # One has failed: the app is about to end, and the others finish what they have begun.
                self._consumer.gate.stop()
                await asyncio.wait(tasks)
            for task in tasks:
                task.result()
        finally:
            await close_engines(self._engines)


def work_once(runner: asyncio.Runner, worker: Worker, most: int) -> bool:
    """Call `worker.step(most)` inside the runner's loop."""
    worked: bool = runner.run(greenlet_spawn(worker.step, most))
    return worked


def async_twins(plan: ConsumerPlan, engines: Sequence[Engine]) -> tuple[Engine, ...]:
    """Return the engines for an async handler in transactions; none for other handlers."""
    if not plan.handler.is_async or plan.effects is not Effects.DATABASE:
        return ()
    return tuple(make_async_twin(engine, plan.workers) for engine in engines)


async def close_engines(engines: Sequence[Engine]) -> None:
    """Close the connections of engines that belong to the running loop."""
    for engine in engines:
        await greenlet_spawn(engine.dispose)


class LoopWorker(Worker):
    """A worker in a greenlet of an event loop; its arguments are those of Worker."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._settler = ThreadedSettler(self._settler)
        self._alone = ThreadedLock(self._alone)

    @staticmethod
    def pause(gate: PauseGate, seconds: float) -> None:
        """See Worker."""
        in_thread(gate.sleep, seconds)

    def take(self) -> list[Delivery]:
        """See Worker."""
        gate, scheduler = self._consumer.gate, self._consumer.scheduler
        most = self._most() * self._placement.places
        if gate.left():
            in_thread(gate.wait)
        return scheduler.take(most, 0.0) or in_thread(scheduler.take, most, TAKE_TIMEOUT)


class ThreadedSettler:
    """Settles in another thread, since the broker may be slow.

    Args:
        settler: does the settling.
    """

    def __init__(self, settler: Settles) -> None:
        self._settler = settler
        self.held_too_long = settler.held_too_long

    def settle(self, verdicts: Pairs) -> None:
        """See Settles."""
        in_thread(self._settler.settle, verdicts)

    def put_off(self, deferred: Sequence[tuple[Delivery, timedelta]]) -> None:
        """See Settles."""
        in_thread(self._settler.put_off, deferred)


class ThreadedLock(AbstractContextManager[object]):
    """Acquires a lock without blocking the event loop, whose other workers may hold it.

    Args:
        lock: may be released by another thread than the one that acquired it.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        in_thread(self._lock.__enter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)


def unblock(chain: Chain) -> Chain:
    """Let hooks outside of the transaction run in other threads: they ask Redis or another connection."""
    chain.reserves = [_threaded(hook) for hook in chain.reserves]
    chain.committeds = [_threaded(hook) for hook in chain.committeds]
    chain.releases = [_threaded(hook) for hook in chain.releases]
    return chain


def _threaded(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda given: in_thread(hook, given)
