"""`Semaphore`: Redisson's RSemaphore – so many at a time, across processes and languages."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self
from uuid import uuid4

from oncemq.contracts.arguments import Argument as HandlerArgument
from oncemq.contracts.arguments import AskedArgument
from oncemq.errors import OnceMQError, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Argument, Call, Script
from oncemq.redis.connect import client_of
from oncemq_strategies.redisson.handlers.arguments import Owner, argument_of, refuse_on_loop
from oncemq_strategies.redisson.handlers.async_calls import ShortCalls, acquired
from oncemq_strategies.redisson.lock import NO_TIME, AsyncBlock, pause_for, wait_for
from oncemq_strategies.redisson.names import below, check_name, semaphore_channel_of
from oncemq_strategies.redisson.semaphores.scripts import DRAIN, GIVE, MARKED_MS, SET, TAKE

NEVER_ENDS = -1
"""Milliseconds, of what no lease ends."""


class Semaphore(AsyncBlock):
    """A number of permits that all processes share; the same semaphore as Redisson's `getSemaphore(name)`.

    Used by `with`, it waits for one permit. A permit belongs to no one: that of a process that died is lost until
    `add_permits` gives it back, which `ExpirableSemaphore` does by itself.

    Args:
        client: as of `Lock`.
        name: Redisson's name of the semaphore.
        permits: that it has if it does not exist yet; None = it has none until `set_permits` or `add_permits`, and what
            waits for one waits until then.
    """

    def __init__(self, client: Any, name: str, *, permits: int | None = None) -> None:
        self._source = client
        client_of(client)  # refuses an invalid client at once
        self.name = name
        self._permits = None if permits is None else at_least(0, permits)
        self._checked = False
        self._owner: Owner | None = None
        self._ours = 0

    @classmethod
    def __oncemq_argument__(cls, asked: AskedArgument) -> HandlerArgument:
        return argument_of(asked, 'Annotated[Semaphore, "exports", 3]', "semaphore", cls._of_handler)

    @classmethod
    def _of_handler(cls, client: RedisClient, name: str, owner: Owner, permits: int | None) -> Self:
        made = cls(client, name, permits=permits)
        made._owner = owner
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def set_permits(self, permits: int) -> bool:
        """Give a semaphore that does not exist yet its permits; return whether it was new (Redisson's `trySetPermits`).

        Raises:
            ValueError: `permits` is negative.
            RedisUnavailable: Redis does not answer.
        """
        return bool(self._change(SET, at_least(0, permits)) == 1)

    def add_permits(self, permits: int) -> None:
        """Raise the number of permits, or lower it by a negative number; raises RedisUnavailable."""
        self._change(GIVE, permits)

    def acquire(self, permits: int = 1, wait: timedelta | None = None) -> bool:
        """Return whether the permits are ours.

        Args:
            permits: all or none.
            wait: how long to wait for them; None = until they are ours, zero = not at all.

        Raises:
            ValueError: `permits` is negative.
            RedisUnavailable: Redis does not answer; the permits are not ours, unless it went away for good after it had
                given them.
            BadLockName: the name is not valid.
            HandlerFault: an async handler would block its event loop.
        """
        refuse_on_loop(self, self._owner)
        if at_least(0, permits) == 0:
            return True
        until = None if wait is None else time.monotonic() + wait.total_seconds()
        if self._take(permits) is None:
            return True
        if wait is not None and wait <= NO_TIME:
            return False
        channel = semaphore_channel_of(self.name)
        return wait_for(self._client, channel, lambda: self._take(permits), until, all_wake=True)

    async def acquire_async(self, permits: int = 1, wait: timedelta | None = None) -> bool:
        """Return whether the permits are ours, as `acquire` does, for a coroutine: others go on while this one waits."""
        if at_least(0, permits) == 0:
            return True

        def undo(acquired: bool) -> None:
            if acquired:
                with suppress(OnceMQError):
                    self.release(permits)

        channel = semaphore_channel_of(self.name)
        return await acquired(
            self._client, channel, lambda: self._take(permits), undo, wait, pause_for, all_wake=True
        )

    async def release_async(self, permits: int = 1) -> None:
        """Give permits back, as `release` does, for a coroutine."""
        await self._client.shared(ShortCalls).result(lambda: self.release(permits), lambda _: None)

    def give_up(self) -> str | None:
        """Release the permits that were acquired by this object; return their number in words, None if none. Never raises."""
        ours = self._ours
        if ours <= 0:
            return None
        with suppress(OnceMQError):
            self.release(ours)
        return f"{ours} permits of {self!r}"

    def release(self, permits: int = 1) -> None:
        """Give permits back, and wake who waits; more than were acquired raise their number.

        Raises:
            ValueError: `permits` is negative.
            RedisUnavailable: Redis does not answer.
        """
        if at_least(0, permits):
            self._ours -= permits
            self._change(GIVE, permits)

    def drain(self) -> int:
        """Take all permits that are left; return their number (Redisson's `drainPermits`)."""
        return int(self._change(DRAIN, 0))

    def available(self) -> int:
        """Return how many permits are left; below 0 after `add_permits` of a negative number, 0 if it does not exist."""
        return int(self._client.command("GET", self.name, key=self.name) or 0)

    @property
    def _client(self) -> RedisClient:
        return client_of(self._source)

    def _take(self, permits: int) -> int | None:
        if self._change(TAKE, permits) != 1:
            return NEVER_ENDS
        self._ours += permits
        return None

    def make_sure(self) -> None:
        """Check the name and, if the semaphore does not exist, give it its `permits`; once for this object."""
        if not self._checked:
            check_name(self.name, clustered=self._client.clustered)
            self._checked = True
            if self._permits is not None:
                self.set_permits(self._permits)

    def _change(self, script: Script, permits: int) -> Any:
        self.make_sure()
        mark = below(self.name, f"oncemq:{uuid4()}")
        words: list[Argument] = [permits, MARKED_MS]
        if script in {GIVE, SET}:
            words += [int(self._client.clustered), semaphore_channel_of(self.name)]
        return insist(self._client, lambda: Call.of(script, [self.name, mark], words))


def insist(client: RedisClient, call: Callable[[], Call]) -> Any:
    """Return the answer to a call that may be applied twice; it is repeated when the first answer was lost."""
    try:
        return client.call(call())
    except RedisUnavailable as error:
        if not error.sent:
            raise
    return client.call(call())


def at_least(least: int, number: int) -> int:
    """Return the number; raises ValueError if it is smaller than `least`."""
    if number < least:
        raise ValueError(f"a number of permits is at least {least}, not {number}")
    return number
