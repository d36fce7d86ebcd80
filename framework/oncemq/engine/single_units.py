"""Runs single units without a broker and without threads: what the strategy suite uses of the engine."""

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.contracts.adapter import Adapter, Subscription
from oncemq.contracts.strategy import Strategy
from oncemq.contracts.unit import Unit
from oncemq.engine.base.strategy_chain import Chain, Failed
from oncemq.engine.consumer.contention import Contention
from oncemq.engine.crash.flight_recorder import NoRecorder
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.engine.parking.parked_source import ParkedMessages
from oncemq.engine.parking.parking_strategies import with_parking
from oncemq.engine.transaction.item_loop import ItemLoop
from oncemq.engine.transaction.retrier import TransactionRetrier
from oncemq.engine.transaction.unit_transaction import UnitTransaction
from oncemq.engine.workers.direct_unit import DirectRunner, Finisher
from oncemq.engine.workers.failure_isolation import UnitResult, UnitRunner
from oncemq.handler.binding import BoundHandler
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader

__all__ = ["Execute", "ParkedMessages", "Point", "direct", "largest_unit", "parked_messages", "transactional"]

Execute = Callable[[Unit], UnitResult]
Point = Callable[[str], None]


def transactional(
    engine: Engine,
    strategies: Sequence[Strategy],
    parked: ParkedMessages | None,
    handler: BoundHandler,
    reader: Reader,
    clock: Clock,
    failed: Failed,
    point: Point,
) -> Execute:
    """Return what runs a unit in a transaction, and isolates its failures.

    Args:
        engine: the database.
        strategies: the chain, in order.
        parked: where early messages wait; None if the chain parks none.
        handler: the function that each message is given to.
        reader: decodes payloads again for another run.
        clock: the source of time.
        failed: called with errors that change nothing.
        point: called with the name of each kill point reached.
    """
    chain, recorder, slot, lane = (
        Chain(with_parking(strategies, parked)),
        NoRecorder(),
        TimeLimitSlot(),
        Contention(),
    )
    loop = ItemLoop(chain, handler, time.monotonic, recorder, slot, point)
    attempt = UnitTransaction(engine, chain, reader, loop, recorder, slot, clock, failed, point)
    tries = TransactionRetrier(
        attempt, lane, lambda _tries, _pause, _error: None, lambda _on, _error: None, time.sleep
    )
    return UnitRunner(chain, attempt, lane, tries, failed).execute


def direct(
    strategies: Sequence[Strategy],
    handler: BoundHandler,
    reader: Reader,
    clock: Clock,
    failed: Failed,
    point: Point,
) -> Execute:
    """Return what runs a unit whose effects are outside of the transaction; arguments as for `transactional`."""
    chain = Chain(strategies)
    chain.loads.insert(0, lambda _run, _items: point("reserved"))
    chain.saves.append(lambda _run: point("saved"))
    chain.committeds.append(lambda _run: point("committed"))
    finisher = Finisher(chain, failed, lambda _tries, _pause, _trouble: None, lambda: False, time.sleep)
    runner = DirectRunner(chain, handler, reader, NoRecorder(), TimeLimitSlot(), clock, failed, finisher)
    return runner.execute


def parked_messages(
    engine: Engine,
    scope: str,
    clock: Clock,
    adapter: Adapter,
    subscription: Subscription,
    understand: Callable[[Delivery], None],
) -> ParkedMessages:
    """Return where a consumer's early messages wait.

    Args:
        engine: the database.
        scope: of the consumer's rows.
        clock: the source of time.
        adapter: the consumer's broker.
        subscription: on it.
        understand: fills in a delivery's envelope and payload.
    """
    return ParkedMessages(scope, engine, clock, adapter, subscription, understand)


def largest_unit(strategies: Sequence[Strategy]) -> int | None:
    """Return the most messages that a unit of this chain may have; None = any number."""
    return Chain(strategies).max_batch
