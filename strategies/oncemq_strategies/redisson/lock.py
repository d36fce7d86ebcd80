"""`Lock`: Redisson's RLock – reentrant, renewed as long as its process lives, with a notice to its holder on loss."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from oncemq.contracts.arguments import Argument as HandlerArgument
from oncemq.contracts.arguments import AskedArgument
from oncemq.errors import HandlerFault, OnceMQError, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Argument, Call
from oncemq.redis.connect import client_of
from oncemq_strategies.redisson.handlers.arguments import argument_of, refuse_on_loop
from oncemq_strategies.redisson.handlers.async_calls import ShortCalls, acquired
from oncemq_strategies.redisson.lease_keeper import LEASE, Holding, Keeper, milliseconds
from oncemq_strategies.redisson.lock_scripts import ACQUIRE, RELEASE, UNTOLD
from oncemq_strategies.redisson.names import channel_of, check_name
from oncemq_strategies.redisson.waiters import Waiters

NO_TIME = timedelta(0)
LOST = -3
_NO_KEY = -2
"""Redis's answer to PTTL where there is nothing."""
_POLL = 1.5
"""Seconds; a message may be lost with its connection, so a waiter also polls."""
_LEAST_PAUSE = 0.05


class NotHeld(OnceMQError):
    """The lock is not, or no longer, held by its caller: another owner may be working under it."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Number of replicas that must have a lock before it counts as acquired.

    Args:
        count: of the lock's own server.
        within: how long to wait for them.
    """

    count: int
    within: timedelta = timedelta(seconds=1)


class Block(ABC):
    """What is acquired for a `with` block and released at its end; an error of the block is not replaced by one of the release."""

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except OnceMQError:
            if error is None:
                raise

    @abstractmethod
    def acquire(self) -> bool:
        """Return when it is ours."""

    @abstractmethod
    def release(self) -> None:
        """Give it back."""


class AsyncBlock(Block):
    """The same for `async with`."""

    async def __aenter__(self) -> Self:
        await self.acquire_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release_async()
        except OnceMQError:
            if error is None:
                raise

    @abstractmethod
    async def acquire_async(self) -> bool:
        """Return when it is ours."""

    @abstractmethod
    async def release_async(self) -> None:
        """Give it back."""


class Lock(AsyncBlock):
    """A lock of one owner at a time, across processes and languages; the same lock as Redisson's `getLock(name)`.

    Used by `with`, it waits until it is acquired. An owner may acquire it repeatedly and must release it as often.

    Args:
        client: a `RedisClient`, a URL, or a client of redis-py or redis-py-cluster. All locks of one URL in a process
            share their connections and threads, and re-entry by a thread is recognized across all of them.
        name: Redisson's name of the lock.
        lease: time after which Redis frees the lock, regardless of its holder; None (the default) = 30 s, renewed as
            long as this process lives.
        owner: of the acquisitions; this thread, unless given.
        replicas: that must have the lock before it counts as acquired.
        on_loss: called once, from another thread, when the lock is lost while it is held.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        lease: timedelta | None = None,
        owner: str | None = None,
        replicas: Replicas | None = None,
        on_loss: Callable[[], None] | None = None,
    ) -> None:
        self._source = client
        client_of(client)  # refuses an invalid client at once
        self.name = name
        self._lease = milliseconds(lease if lease is not None else LEASE)
        self._watched = lease is None
        self._owner = owner
        self._replicas = replicas
        self._on_loss = on_loss
        self._checked = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @classmethod
    def __oncemq_argument__(cls, asked: AskedArgument) -> HandlerArgument:
        example = f'Annotated[{cls.__name__}, "stock-{{key}}"]'
        return argument_of(
            asked, example, "lock", lambda client, name, owner, _: cls(client, name, owner=owner)
        )

    async def acquire_async(self, wait: timedelta | None = None) -> bool:
        """Return whether the lock is ours, as `acquire` does, for a coroutine: others go on while this one waits.

        Raises:
            HandlerFault: the lock has no `owner`; a coroutine is none, since others run in its thread.
        """
        self._need_owner()
        return await acquired(
            self._client, self._channel(), self._try, self._undo, wait, pause_for, all_wake=self._all_wake
        )

    async def release_async(self) -> None:
        """Release the lock, as `release` does, for a coroutine."""
        self._need_owner()
        await self._client.shared(ShortCalls).result(self.release, lambda _: None)

    def give_up(self) -> str | None:
        """Release all holds of this owner; return what they were in words, None if there were none. Never raises."""
        holding = self._holding()
        if holding is None:
            return None
        words = f"{self!r}, held {holding.holds} times" if holding.holds > 1 else repr(self)
        for _ in range(holding.holds):
            self._take_back()
        self._keeper.drop(holding)
        return words

    def _undo(self, acquired: bool) -> None:
        """Take back an attempt that no one waits for any more."""
        if acquired:
            self._take_back()

    def _take_back(self) -> None:
        with suppress(OnceMQError):
            self.release()

    def _need_owner(self) -> None:
        if self._owner is None:
            raise HandlerFault(
                f"{self!r} has no owner of its own, and a coroutine is none: write {type(self).__name__}(…, owner=…), or take "
                "it as a parameter of the handler"
            )

    def acquire(self, wait: timedelta | None = None) -> bool:
        """Return whether the lock is ours.

        Args:
            wait: how long to wait for it; None = until it is ours, zero = not at all.

        Raises:
            RedisUnavailable: Redis does not answer; the lock is not ours, or frees itself within its lease.
            NotHeld: it was acquired before and has been lost since.
            BadLockName: the name is not valid for a lock.
            HandlerFault: an async handler would block its event loop.
        """
        refuse_on_loop(self, self._owner)
        until = None if wait is None else time.monotonic() + wait.total_seconds()
        if self._try() is None:
            return True
        if wait is not None and wait <= NO_TIME:
            return False
        return self._wait(until)

    def release(self) -> None:
        """Release the lock; the last of several holds frees it and wakes a waiter.

        Raises:
            NotHeld: it is not, or no longer, ours.
            RedisUnavailable: Redis does not answer; the lock frees itself within its lease.
        """
        holding = self._holding()
        if holding is None:
            raise NotHeld(f"lock {self.name!r} is not held by {self.owner}")
        holding.holds -= 1
        if not holding.holds:
            self._keeper.drop(holding)
        answer = None if holding.lost else self._insist(lambda: self._release_call(holding))
        if answer == UNTOLD:
            self._keeper.untold(self.name, self._release_channel())
        if answer is None:
            self._keeper.drop(holding)
            raise NotHeld(
                f"lock {self.name!r} was lost before it was released: another may have worked under it"
            )

    def extend(self, by: timedelta) -> None:
        """Extend the lease to at least `by` from now; never shortens it.

        Raises:
            NotHeld: it is not, or no longer, ours.
        """
        holding, sent, lease = self._holding(), time.monotonic(), milliseconds(by)
        if holding is None or holding.lost:
            raise NotHeld(f"lock {self.name!r} is not held by {self.owner}")
        if self._insist(lambda: holding.renewal(lease)) != 1:
            self._keeper.lose(holding)
            raise NotHeld(f"lock {self.name!r} was lost before it could be extended")
        holding.valid_until = max(holding.valid_until, sent + lease / 1000)

    def locked(self) -> bool:
        """Return whether the lock is held by any owner."""
        return bool(self._client.command("EXISTS", self.name, key=self.name) == 1)

    def owned(self) -> bool:
        """Return whether the lock is still ours, without asking Redis; never True for a lost lock."""
        holding = self._holding()
        return holding is not None and holding.valid

    def hold_count(self) -> int:
        """Return how often this owner holds the lock, as Redis has it; 0 if it does not, also after a loss."""
        return int(self._client.command("HGET", self.name, self.owner, key=self.name) or 0)

    def remaining(self) -> timedelta | None:
        """Return the time until the lease of its holder ends, whichever that is; None if the lock is free.

        A lock that never ends has `timedelta.max`. One that is renewed has the time until it would end if its process died.
        """
        left = int(self._client.command("PTTL", self.name, key=self.name))
        if left < 0:
            return None if left == _NO_KEY else timedelta.max
        return timedelta(milliseconds=left)

    @property
    def owner(self) -> str:
        """This owner's name in Redis: `client:thread`."""
        return f"{self._keeper.id}:{self._owner}" if self._owner is not None else self._keeper.owner()

    @property
    def _client(self) -> RedisClient:
        # Looked up each time: a child process has its own clients, also for locks made by its parent.
        return client_of(self._source)

    @property
    def _keeper(self) -> Keeper:
        return self._client.shared(Keeper)

    def _holding(self) -> Holding | None:
        return self._keeper.find(self.name, self.owner)

    def _channel(self) -> str:
        """Return the channel that wakes this owner."""
        return self._release_channel()

    def _release_channel(self) -> str:
        return channel_of(self.name)

    def _try(self) -> int | None:
        """Acquire now; returns None, or the milliseconds until the holder's lease ends."""
        if not self._checked:
            check_name(self.name, clustered=self._client.clustered)
            self._checked = True
        holding, sent = self._holding(), time.monotonic()
        if holding is not None and holding.lost:
            raise NotHeld(f"lock {self.name!r} was lost: release it before it is acquired again")
        answer = self._ask(1 if holding is None else holding.holds + 1)
        left, token = self._understood(answer)
        if left == LOST and holding is not None:
            self._keeper.lose(holding)
            raise NotHeld(f"lock {self.name!r} was lost while it was held")
        if left is None:
            self._gained(holding, sent, token)
        return left

    def _ask(self, holds: int) -> Any:
        sure: list[Call] = []

        def call() -> Call:
            made = self._acquire_call(holds)
            if self._replicas is not None:
                made.wait = (self._replicas.count, milliseconds(self._replicas.within))
            sure[:] = [made]
            return made

        answer = self._insist(call)
        if self._replicas is not None and self._understood(answer)[0] is None:
            self._require_replicas(sure[0], holds)
        return answer

    def _require_replicas(self, call: Call, holds: int) -> None:
        if self._replicas is None or call.acknowledged >= self._replicas.count:
            return
        if holds == 1:
            self._insist(lambda: self._release_call(self._new_holding(time.monotonic(), 0), left=0))
        raise RedisUnavailable(
            f"lock {self.name!r} reached {call.acknowledged} of {self._replicas.count} replicas, so it was given back"
        )

    def _gained(self, holding: Holding | None, sent: float, token: int) -> None:
        if holding is not None:
            holding.holds += 1
            holding.token = token
            holding.valid_until = max(holding.valid_until, sent + self._lease / 1000)
            return
        self._keeper.add(self._new_holding(sent, token))

    def _new_holding(self, sent: float, token: int) -> Holding:
        holding = self._make_holding(sent, token)
        if self._on_loss is not None:
            holding.on_loss.append(self._on_loss)
        return holding

    def _make_holding(self, sent: float, token: int) -> Holding:
        return Holding(self.name, self.owner, self._lease, sent, watched=self._watched, token=token)

    def _wait(self, until: float | None) -> bool:
        return wait_for(self._client, self._channel(), self._try, until, all_wake=self._all_wake)

    def _insist(self, call: Callable[[], Call]) -> Any:
        """Return the answer to a call that may be applied twice; it is repeated when the first answer was lost."""
        try:
            return self._client.call(call())
        except RedisUnavailable as error:
            if not error.sent:
                raise
        return self._answer_again(call)

    def _answer_again(self, call: Callable[[], Call]) -> Any:
        answer = self._client.call(call())
        made = call()
        # The first call applied it, so the second finds nothing: that is no loss.
        return 1 if answer is None and made.script is self._release_script else answer

    _release_script = RELEASE
    _all_wake = False
    """A message wakes all waiters of this process: more than one of them may succeed."""

    def _acquire_call(self, holds: int) -> Call:
        return Call.of(ACQUIRE, [self.name], [self._lease, self.owner, holds])

    def _release_call(self, holding: Holding, left: int | None = None) -> Call:
        return Call.of(RELEASE, [self.name], self._release_words(holding, left))

    def _release_words(self, holding: Holding, left: int | None) -> list[Argument]:
        holds = holding.holds if left is None else left
        clustered = int(self._client.clustered)
        return [holding.lease, holding.owner, holds, clustered, self._release_channel()]

    def _understood(self, answer: Any) -> tuple[int | None, int]:
        """Return the result of `_try`, and the token."""
        return answer, 0


def wait_for(
    client: RedisClient,
    channel: str,
    attempt: Callable[[], int | None],
    until: float | None,
    *,
    all_wake: bool = False,
) -> bool:
    """Repeat an attempt after each message in a channel, and now and then without one; return whether it succeeded.

    Args:
        client: subscribes to the channel.
        channel: of what is waited for.
        attempt: returns None when it succeeded, else the milliseconds until a lease ends that it waits for.
        until: the monotonic second to give up at; None = never.
        all_wake: a message wakes all waiters of this process.
    """
    with client.shared(Waiters).joined(channel, all_wake=all_wake) as waiter:
        waiter.hear(_left(until))
        while True:
            held_for = attempt()
            if held_for is None:
                return True
            if _left(until) <= 0:
                return False
            waiter.wait(min(_left(until), pause_for(held_for)))


def _left(until: float | None) -> float:
    return threading.TIMEOUT_MAX if until is None else until - time.monotonic()


def pause_for(held_for: int) -> float:
    """Return the longest time to wait for a message; a lease that expires sends none."""
    return max(_LEAST_PAUSE, min(held_for / 1000, _POLL * random.uniform(0.8, 1.2)))  # noqa: S311 - jitter
