"""`FairLock`: Redisson's RFairLock – granted in the order of waiting, across processes and languages."""

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oncemq.errors import RedisUnavailable
from oncemq.redis.call import Argument, Call
from oncemq_strategies.redisson.handlers.async_calls import ShortCalls
from oncemq_strategies.redisson.lease_keeper import Holding
from oncemq_strategies.redisson.lock import NO_TIME, Lock
from oncemq_strategies.redisson.lock_scripts import ACQUIRE_FAIR, LEAVE_QUEUE, RELEASE_FAIR
from oncemq_strategies.redisson.names import channel_of, queue_of, timeouts_of

_PLACE_KEPT = 300_000
"""Milliseconds that a dead waiter may block those behind it; Redisson's own number, which both sides must use."""


class FairLock(Lock):
    """A `Lock` granted in the order of requests; the same lock as Redisson's `getFairLock(name)`."""

    _release_script = RELEASE_FAIR

    def __init__(self, client: Any, name: str, **more: Any) -> None:
        super().__init__(client, name, **more)
        self._queueing = False

    def _wait(self, until: float | None) -> bool:
        owner, ours = self.owner, False
        self._queueing = True
        try:
            ours = super()._wait(until)
        finally:
            self._queueing = False
            if not ours:
                self._leave(owner)
        return ours

    async def acquire_async(self, wait: timedelta | None = None) -> bool:
        """Return whether the lock is ours, as `acquire` does, for a coroutine."""
        if wait is not None and wait <= NO_TIME:
            return await super().acquire_async(wait)
        owner, ours = self.owner, False
        self._queueing = True
        try:
            ours = await super().acquire_async(wait)
        finally:
            self._queueing = False
            if not ours:
                self._client.shared(ShortCalls).submit(lambda: self._leave(owner))
        return ours

    def _undo(self, acquired: bool) -> None:
        super()._undo(acquired)
        if not acquired:
            self._leave(self.owner)

    def _leave(self, owner: str) -> None:
        """Leave the queue, not blocking waiters behind; while Redis is away they wait until our place expires."""
        with suppress(RedisUnavailable):
            arguments: list[Argument] = [
                owner,
                _PLACE_KEPT,
                int(self._client.clustered),
                channel_of(self.name),
            ]
            self._insist(lambda: Call.of(LEAVE_QUEUE, self._keys(), arguments))

    def _channel(self) -> str:
        return f"{channel_of(self.name)}:{self.owner}"

    def _keys(self) -> list[str]:
        return [self.name, queue_of(self.name), timeouts_of(self.name)]

    def _acquire_call(self, holds: int) -> Call:
        arguments: list[Argument] = [self._lease, self.owner, holds, _now(), _PLACE_KEPT, int(self._queueing)]
        return Call.of(ACQUIRE_FAIR, self._keys(), arguments)

    def _release_call(self, holding: Holding, left: int | None = None) -> Call:
        return Call.of(RELEASE_FAIR, self._keys(), [*self._release_words(holding, left), _now()])


def _now() -> int:
    """Return the wall clock in milliseconds, which waiters of all machines compare."""
    return round(time.time() * 1000)
