"""`ExpirableSemaphore`: Redisson's RPermitExpirableSemaphore – so many at a time, and none is lost with its process."""

import asyncio
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from oncemq.contracts.arguments import Argument as HandlerArgument
from oncemq.contracts.arguments import AskedArgument
from oncemq.errors import OnceMQError, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Argument, Call, Script
from oncemq.redis.connect import client_of
from oncemq_strategies.redisson.handlers.arguments import Owner, argument_of, refuse_on_loop
from oncemq_strategies.redisson.handlers.async_calls import ShortCalls, acquired
from oncemq_strategies.redisson.lease_keeper import LEASE, Holding, Keeper, milliseconds
from oncemq_strategies.redisson.lock import NO_TIME, NotHeld, pause_for, wait_for
from oncemq_strategies.redisson.lock_scripts import UNTOLD
from oncemq_strategies.redisson.names import below, semaphore_channel_of
from oncemq_strategies.redisson.semaphores.counting import Semaphore, insist
from oncemq_strategies.redisson.semaphores.scripts import EXTEND_LEASE, GIVE_LEASE, LEFT, TAKE_LEASE

_TAKEN = -3
_NAME = re.compile("([0-9a-f]{2})+")


class Permit:
    """One permit of an `ExpirableSemaphore`, released at the end of `with`.

    Attributes:
        id: Redisson's name of the permit, 32 hexadecimal digits.
    """

    def __init__(self, semaphore: "ExpirableSemaphore", holding: Holding) -> None:
        self._semaphore = semaphore
        self._holding = holding
        self.id = holding.owner

    def __repr__(self) -> str:
        return f"<Permit {self.id} of {self._semaphore.name!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except OnceMQError:
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release_async()
        except OnceMQError:
            if error is None:
                raise

    async def release_async(self) -> None:
        """Give the permit back, as `release` does, for a coroutine."""
        await self._semaphore.client.shared(ShortCalls).result(self.release, lambda _: None)

    def owned(self) -> bool:
        """Return whether the permit is still ours, without asking Redis; never True for one that ended."""
        return self._holding.valid

    def release(self) -> None:
        """Give the permit back, and wake a waiter.

        Raises:
            NotHeld: it has ended, or was released already.
            RedisUnavailable: Redis does not answer; the permit ends with its lease.
        """
        self._semaphore.release(self.id)

    def extend(self, by: timedelta) -> None:
        """Extend the lease to at least `by` from now; raises as `release`."""
        sent, lease = time.monotonic(), milliseconds(by)
        client = self._semaphore.client
        if self._holding.lost or insist(client, lambda: self._holding.renewal(lease)) != 1:
            client.shared(Keeper).lose(self._holding)
            raise NotHeld(f"permit {self.id} of {self._semaphore.name!r} ended before it could be extended")
        self._holding.valid_until = max(self._holding.valid_until, sent + lease / 1000)


class ExpirableSemaphore:
    """A semaphore whose permits end by themselves; the same as Redisson's `getPermitExpirableSemaphore(name)`.

    Used by `with`, it waits for one permit. Times are those of the server's clock.

    Args:
        client: as of `Lock`.
        name: Redisson's name of the semaphore.
        permits: that it has if it does not exist yet; None = it has none until `set_permits`.
        lease: time after which Redis takes a permit back; None (the default) = 30 s, renewed as long as this process lives.
        on_loss: called once for each permit that ends while it is held, from another thread.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        permits: int | None = None,
        lease: timedelta | None = None,
        on_loss: Callable[[], None] | None = None,
    ) -> None:
        self._number = Semaphore(client, name, permits=permits)
        self._source = client
        self.name = name
        self._lease = milliseconds(lease if lease is not None else LEASE)
        self._watched = lease is None
        self._on_loss = on_loss
        self._entered = threading.local()
        self._entered_async: dict[Any, list[Permit]] = {}
        self._owner: Owner | None = None
        self._ours: dict[str, Permit] = {}

    @classmethod
    def __oncemq_argument__(cls, asked: AskedArgument) -> HandlerArgument:
        return argument_of(
            asked, 'Annotated[ExpirableSemaphore, "exports", 3]', "expirable semaphore", cls._of_handler
        )

    @classmethod
    def _of_handler(cls, client: RedisClient, name: str, owner: Owner, permits: int | None) -> Self:
        made = cls(client, name, permits=permits)
        made._owner = owner
        return made

    def __repr__(self) -> str:
        return f"<ExpirableSemaphore {self.name!r}>"

    def __enter__(self) -> Permit:
        permit = self.acquire()
        if permit is None:
            raise RedisUnavailable(f"semaphore {self.name!r} gave no permit")
        self._entered.__dict__.setdefault("permits", []).append(permit)
        return permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        permit: Permit = self._entered.permits.pop()
        permit.__exit__(kind, error, trace)

    async def __aenter__(self) -> Permit:
        permit = await self.acquire_async()
        if permit is None:
            raise RedisUnavailable(f"semaphore {self.name!r} gave no permit")
        self._entered_async.setdefault(asyncio.current_task(), []).append(permit)
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        permit = self._entered_async[task].pop()
        if not self._entered_async[task]:
            del self._entered_async[task]
        await permit.__aexit__(kind, error, trace)

    def set_permits(self, permits: int) -> bool:
        """Give a semaphore that does not exist yet its permits; return whether it was new; raises as `Semaphore`."""
        return self._number.set_permits(permits)

    def acquire(self, wait: timedelta | None = None) -> Permit | None:
        """Return a permit, or None if there was none in time.

        Args:
            wait: how long to wait for it; None = until there is one, zero = not at all.

        Raises:
            RedisUnavailable: Redis does not answer; a permit that it gave nevertheless ends with its lease.
            BadLockName: the name is not valid.
        """
        refuse_on_loop(self, self._owner)
        taking = _Taking(self)
        until = None if wait is None else time.monotonic() + wait.total_seconds()
        if taking.attempt() is not None:
            if wait is not None and wait <= NO_TIME:
                return None
            if not wait_for(self.client, taking.channel, taking.attempt, until, all_wake=True):
                return None
        return taking.permit

    async def acquire_async(self, wait: timedelta | None = None) -> Permit | None:
        """Return a permit, as `acquire` does, for a coroutine: others go on while this one waits."""
        taking = _Taking(self)
        await acquired(
            self.client, taking.channel, taking.attempt, taking.undo, wait, pause_for, all_wake=True
        )
        return taking.permit

    def give_up(self) -> str | None:
        """Release the permits that were acquired by this object; return their number in words, None if none. Never raises."""
        left = [permit for permit in self._ours.values() if permit.owned()]
        for permit in left:
            with suppress(OnceMQError):
                permit.release()
        return f"{len(left)} permits of {self!r}" if left else None

    def release(self, permit: str) -> None:
        """Give a permit back by its name, also one that another process or a Java service acquired; raises as `Permit.release`."""
        keeper = self.client.shared(Keeper)
        if not _NAME.fullmatch(permit):
            raise NotHeld(f"{permit[:60]!r} names no permit of {self.name!r}")
        holding = keeper.find(self.name, permit)
        self._ours.pop(permit, None)
        if holding is not None:
            keeper.drop(holding)
            holding.lost = True
        try:
            answer = self._give(permit)
        except RedisUnavailable as error:
            if not error.sent:
                raise
            again = self._give(permit)
            # The first call applied it, so the second finds nothing: that is no loss.
            answer = 1 if again is None else again
        if answer == UNTOLD:
            keeper.untold(self.name, semaphore_channel_of(self.name))
        if not answer:
            raise NotHeld(
                f"permit {permit} of {self.name!r} has ended or was released: another may have worked with it"
            )

    def available(self) -> int:
        """Return how many permits are left; 0 if the semaphore does not exist."""
        return int(self._ask(LEFT))

    @property
    def client(self) -> RedisClient:
        """The client of this process."""
        return client_of(self._source)

    def take(self, name: str) -> "int | Permit":
        """Return a permit of this name, or the milliseconds until one ends that others have (-1: none does)."""
        self._number.make_sure()
        sent = time.monotonic()
        left = int(self._ask(TAKE_LEASE, self._lease, bytes.fromhex(name)))
        if left != _TAKEN:
            return left
        permit = Permit(self, self._held(name, sent))
        if self._owner is not None:
            self._ours[name] = permit
        return permit

    def _held(self, name: str, sent: float) -> Holding:
        holding = _PermitHolding(self.name, name, self._lease, sent, watched=self._watched)
        holding.clustered = self.client.clustered
        if self._on_loss is not None:
            holding.on_loss.append(self._on_loss)
        self.client.shared(Keeper).add(holding)
        return holding

    def _give(self, permit: str) -> Any:
        return self.client.call(_call(self.name, self.client.clustered, GIVE_LEASE, bytes.fromhex(permit)))

    def _ask(self, script: Script, *words: Argument) -> Any:
        return insist(self.client, lambda: _call(self.name, self.client.clustered, script, *words))


class _Taking:
    """The attempts to take one permit: its name makes those whose answers were lost harmless."""

    def __init__(self, semaphore: ExpirableSemaphore) -> None:
        self._semaphore = semaphore
        self._name = secrets.token_hex(16)
        self.channel = semaphore_channel_of(semaphore.name)
        self.permit: Permit | None = None

    def attempt(self) -> int | None:
        answer = self._semaphore.take(self._name)
        if isinstance(answer, int):
            return answer
        self.permit = answer
        return None

    def undo(self, acquired: bool) -> None:
        if acquired:
            with suppress(OnceMQError):
                self._semaphore.release(self._name)


class _PermitHolding(Holding):
    """A permit held in this process."""

    __slots__ = ("clustered",)

    clustered: bool

    def renewal(self, lease: int) -> Call:
        """Return the call that extends the permit's lease."""
        return _call(self.name, self.clustered, EXTEND_LEASE, lease, bytes.fromhex(self.owner))


def _call(name: str, clustered: bool, script: Script, *words: Argument) -> Call:
    keys = [name, below(name, "timeout")]
    return Call.of(script, keys, [int(clustered), semaphore_channel_of(name), *words])
