"""Builds what runs transactional units on one shard: of a handler, or of a consumer's `on_dead` function."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine, MetaData

from oncemq.engine.base.final_failures import FinalRecord
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.crash.flight_recorder import AnyRecorder
from oncemq.engine.crash.time_limits import TimeLimits, TimeLimitSlot
from oncemq.engine.plan import ConsumerPlan
from oncemq.engine.process_context import ProcessContext
from oncemq.engine.transaction.batch_loop import BatchLoop
from oncemq.engine.transaction.item_loop import ItemLoop
from oncemq.engine.transaction.retrier import TransactionRetrier
from oncemq.engine.transaction.unit_transaction import UnitTransaction
from oncemq.engine.workers.failure_isolation import UnitRunner
from oncemq.engine.workers.worker import Execute
from oncemq.handler.binding import BoundHandler


@dataclass(frozen=True, slots=True)
class Told:
    """Who is told of what happens in units.

    Args:
        infrastructure: called with (tries, pause in seconds, error) before the same run is repeated.
        lane: called when units become exclusive (True, error) or no longer are (False, None).
        commits: called when a handler called `session.commit()`.
    """

    infrastructure: Callable[[int, float, BaseException], None]
    lane: Callable[[bool, BaseException | None], None]
    commits: Callable[[], None]


def transactional(
    plan: ConsumerPlan,
    shop: ProcessContext,
    shard: int,
    engine: Engine,
    chain: Chain,
    handler: BoundHandler,
    recorder: AnyRecorder,
    slot: TimeLimitSlot,
    lane: Contention,
    told: Told,
    pause: Callable[[float], None],
) -> Execute:
    """Return what runs a unit in a transaction of this engine.

    Args:
        plan: the consumer.
        shop: what the process shares.
        shard: which of the app's databases it is.
        engine: the same, or its twin for an event loop.
        chain: the hooks before and after the handler.
        handler: the function.
        recorder: the worker's flight recorder.
        slot: the worker's time limits.
        lane: whether units are exclusive.
        told: who is told of what happens.
        pause: waits seconds between tries.
    """
    make_loop = BatchLoop if handler.is_batch else ItemLoop
    attempt = UnitTransaction(
        engine,
        chain,
        plan.reader,
        make_loop(chain, handler, shop.clock.monotonic, recorder, slot, shop.point),
        recorder,
        slot,
        shop.clock,
        shop.observers.failed,
        shop.point,
        shop.relays[shard],
        [table for strategy in plan.strategies_on(0) for table in strategy.tables(MetaData())],
        isolate=plan.isolate,
        commits=told.commits,
    )
    tries = TransactionRetrier(attempt, lane, told.infrastructure, told.lane, pause)
    return UnitRunner(chain, attempt, lane, tries, shop.observers.failed, shop.point).execute


def on_dead_runners(
    plan: ConsumerPlan,
    shop: ProcessContext,
    recorder: AnyRecorder,
    told: Told,
) -> list[Execute]:
    """Return what runs the consumer's `on_dead` function for one message, on each shard.

    Args:
        plan: the consumer; it has such a function.
        shop: what the process shares.
        recorder: charges the function with deaths of the process.
        told: who is told of what happens in its units.
    """
    if plan.on_dead is None:
        return []
    slot = TimeLimitSlot(recorder.overrun)
    shop.watchdog.watch(plan.name, slot, TimeLimits(plan.soft_limit, plan.hard_limit))
    lane = Contention(shop.clock.monotonic)
    chain = Chain([FinalRecord(shop.clock, generations=plan.generations is not None)])

    def pause(seconds: float) -> None:
        shop.leaving.wait(seconds)

    return [
        transactional(plan, shop, shard, engine, chain, plan.on_dead, recorder, slot, lane, told, pause)
        for shard, engine in enumerate(shop.engines)
    ]
