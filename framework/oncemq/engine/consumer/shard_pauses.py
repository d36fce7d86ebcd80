"""Pauses one shard of a sharded database: an unavailable shard stops only its own keys."""

from collections.abc import Callable
from datetime import timedelta

from oncemq.common.clock import Clock
from oncemq.common.sharding import Layout
from oncemq.contracts.verdict import Verdict, defer
from oncemq.engine.consumer.pause_gate import PauseGate
from oncemq.errors import InfrastructureError
from oncemq.message.envelope import Delivery

_SHARE = 4.0
"""The time spent on a shard that fails slowly is at most a fifth: the other shards need the workers, too."""
_LONGEST_SHARE = 15.0

Told = Callable[[InfrastructureError, float], None]
"""Called with the reason and the seconds of a shard's pause."""


class ShardPauses:
    """Tracks the unavailable shards of a consumer's database.

    Args:
        layout: which shard a key belongs to.
        clock: the source of time.
        paused: called for every pause.
        resumed: called when a shard answers again, with the seconds of its outage.
    """

    def __init__(self, layout: Layout, clock: Clock, paused: Told, resumed: Callable[[float], None]) -> None:
        self._layout = layout
        self._paused = paused
        self._resumed = resumed
        self._gates = [PauseGate(clock) for _ in range(layout.shards)]
        self._troubles: dict[int, InfrastructureError] = {}

    def shard_of(self, delivery: Delivery) -> int:
        """Return the shard of a message."""
        return self._layout.shard_of(delivery.key)

    def wait_for(self, delivery: Delivery) -> Verdict | None:
        """Return the deferral of a message whose shard is unavailable; None when it may run."""
        left = self._gates[self._layout.shard_of(delivery.key)].left()
        return defer(timedelta(seconds=left), "the shard of its key is unavailable") if left else None

    def failed(self, delivery: Delivery, trouble: InfrastructureError, seconds: float) -> None:
        """Pause the shard of a message.

        Args:
            delivery: the message, or one of several messages of that shard.
            trouble: the error.
            seconds: the time until the failure showed; 0 if it includes a handler's own time.
        """
        self.pause(self._layout.shard_of(delivery.key), trouble, seconds)

    def pause(self, shard: int, trouble: InfrastructureError, seconds: float = 0.0) -> None:
        """Pause a shard, counted from 0; see `failed`."""
        named = InfrastructureError(
            f"shard {shard + 1} of {self._layout.shards} is paused, the others go on: {trouble}"
        )
        named.__cause__ = trouble.__cause__
        self._troubles[shard] = named
        self._paused(named, self._gates[shard].close(min(_LONGEST_SHARE, _SHARE * seconds)))

    def succeeded(self, delivery: Delivery) -> None:
        """Record that the shard of a message answers."""
        shard = self._layout.shard_of(delivery.key)
        lasted = self._gates[shard].succeeded()
        if lasted is not None:
            self._troubles.pop(shard, None)
            self._resumed(lasted)

    def trouble(self) -> InfrastructureError | None:
        """Return why a shard is paused, the first of several; None while all answer."""
        troubles = self._troubles.copy()
        return troubles[min(troubles)] if troubles else None
