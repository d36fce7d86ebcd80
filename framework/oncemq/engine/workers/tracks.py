"""Which shard's strategies and handler a message meets: a unit never spans shards, and a key never changes its shard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from oncemq.common.sharding import Layout
from oncemq.contracts.unit import Unit
from oncemq.engine.base.strategy_chain import Chain
from oncemq.engine.workers.failure_isolation import UnitResult
from oncemq.engine.workers.finishing import Finisher
from oncemq.engine.workers.worker import Execute
from oncemq.handler.binding import BoundHandler

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Track:
    """What a direct message meets on its shard.

    Args:
        chain: the strategies' hooks.
        handler: the user's function.
        finisher: does what follows the handler.
    """

    chain: Chain
    handler: BoundHandler
    finisher: Finisher


def by_key(things: Sequence[Thing], layout: Layout | None) -> Callable[[str], Thing]:
    """Return what finds a key's one of things that are there once for each shard."""
    if layout is None:
        (only,) = things
        return lambda _key: only
    return lambda key: things[layout.shard_of(key)]


def by_unit(executes: Sequence[Execute], layout: Layout | None) -> Execute:
    """Return what runs a unit on its shard."""
    if layout is None:
        return executes[0]

    def execute(unit: Unit) -> UnitResult:
        return executes[layout.shard_of(unit.deliveries[0].key)](unit)

    return execute
