"""`ReadWriteLock`: Redisson's RReadWriteLock – many readers or one writer, across processes and languages."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from oncemq.contracts.arguments import Argument as HandlerArgument
from oncemq.contracts.arguments import AskedArgument
from oncemq.errors import OnceMQError
from oncemq.redis.call import Argument, Call
from oncemq_strategies.redisson.handlers.arguments import argument_of
from oncemq_strategies.redisson.lease_keeper import Holding
from oncemq_strategies.redisson.lock import NO_TIME, Lock, Replicas
from oncemq_strategies.redisson.names import BadLockName, below, read_write_channel_of
from oncemq_strategies.redisson.read_write.scripts import (
    ACQUIRE_READ,
    ACQUIRE_WRITE,
    EXTEND_READ,
    FOREIGN,
    IS_READ,
    IS_WRITTEN,
    RELEASE_READ,
    RELEASE_WRITE,
)

_WRITER = ":write"


class ReadLockHeld(OnceMQError):
    """The write lock was asked for by an owner that reads: it would wait for itself."""


class ReadWriteLock:
    """Locks for many readers or one writer; the same locks as Redisson's `getReadWriteLock(name)`.

    The writer may read as well, and still reads after it has released the write lock; a reader cannot become the writer.
    Readers that keep coming keep a writer waiting, as in Redisson.

    Args:
        client: as of `Lock`.
        name: Redisson's name of the lock.
        lease: as of `Lock`, of each acquisition.
        owner: of the acquisitions; this thread, unless given.
        replicas: that must have the lock before it counts as acquired.
        on_loss: called once for each of both locks that is lost while it is held, from another thread.

    Attributes:
        read: the lock that readers share.
        write: the lock that excludes all others.
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
        self.name = name
        self.read = ReadLock(client, name, lease=lease, owner=owner, replicas=replicas, on_loss=on_loss)
        self.write = WriteLock(client, name, lease=lease, owner=owner, replicas=replicas, on_loss=on_loss)

    def __repr__(self) -> str:
        return f"<ReadWriteLock {self.name!r}>"

    @classmethod
    def __oncemq_argument__(cls, asked: AskedArgument) -> HandlerArgument:
        example = 'Annotated[ReadWriteLock, "prices-{key}"]'
        return argument_of(
            asked, example, "read-write lock", lambda client, name, owner, _: cls(client, name, owner=owner)
        )

    def give_up(self) -> str | None:
        """Release all holds of this owner; return what they were in words, None if there were none. Never raises."""
        left = [words for half in (self.write, self.read) if (words := half.give_up()) is not None]
        return " and ".join(left) or None


class _Half(Lock):
    """What both locks have in common."""

    _all_wake = True

    @classmethod
    def __oncemq_argument__(cls, asked: AskedArgument) -> HandlerArgument:
        asked.refuse(
            'is half of a lock: write Annotated[ReadWriteLock, "prices-{key}"], and use its read and write'
        )

    def _release_channel(self) -> str:
        return read_write_channel_of(self.name)

    def _understood(self, answer: Any) -> tuple[int | None, int]:
        if answer == FOREIGN:
            raise BadLockName(
                f"{self.name!r} is held as a lock of another kind: give a read-write lock a name of its own"
            )
        return answer, 0


class ReadLock(_Half):
    """The lock that readers share; made by `ReadWriteLock`."""

    _release_script = RELEASE_READ

    def locked(self) -> bool:
        """Return whether any owner reads."""
        return bool(self._client.run(IS_READ, [self.name]) == 1)

    def _acquire_call(self, holds: int) -> Call:
        owner = self.owner
        words: list[Argument] = [self._lease, owner, holds, owner + _WRITER]
        return Call.of(ACQUIRE_READ, [self.name, _hold_key(self.name, owner, holds)], words)

    def _release_call(self, holding: Holding, left: int | None = None) -> Call:
        words = [*self._release_words(holding, left), _holds_of(self.name)]
        return Call.of(
            RELEASE_READ, [self.name, _hold_key(self.name, holding.owner, int(words[2]) + 1)], words
        )

    def _make_holding(self, sent: float, token: int) -> Holding:
        return _Reading(self.name, self.owner, self._lease, sent, watched=self._watched, token=token)


class WriteLock(_Half):
    """The lock that excludes readers and writers; made by `ReadWriteLock`."""

    _release_script = RELEASE_WRITE

    def locked(self) -> bool:
        """Return whether any owner writes."""
        return bool(self._client.run(IS_WRITTEN, [self.name]) == 1)

    @property
    def owner(self) -> str:
        """This owner's name in Redis: `client:thread:write`."""
        return super().owner + _WRITER

    async def acquire_async(self, wait: timedelta | None = None) -> bool:
        """Return whether the lock is ours, as `acquire` does, for a coroutine."""
        if wait is None or wait > NO_TIME:
            self._refuse_to_wait_for_itself()
        return await super().acquire_async(wait)

    def _wait(self, until: float | None) -> bool:
        self._refuse_to_wait_for_itself()
        return super()._wait(until)

    def _refuse_to_wait_for_itself(self) -> None:
        if self._keeper.find(self.name, super().owner) is not None and self._holding() is None:
            raise ReadLockHeld(
                f"lock {self.name!r} is read by {super().owner}, which would wait for itself to write: release the read lock first"
            )

    def _acquire_call(self, holds: int) -> Call:
        return Call.of(ACQUIRE_WRITE, [self.name], [self._lease, self.owner, holds])

    def _release_call(self, holding: Holding, left: int | None = None) -> Call:
        return Call.of(RELEASE_WRITE, [self.name], self._release_words(holding, left))


class _Reading(Holding):
    """A read lock held in this process."""

    __slots__ = ()

    def renewal(self, lease: int) -> Call:
        """Return the call that extends the lock and this reader's holds."""
        return Call.of(EXTEND_READ, [self.name], [lease, self.owner, _holds_of(self.name)])


def _holds_of(name: str) -> str:
    """Return what the keys of all holds begin with."""
    return below(name, "")[:-1]


def _hold_key(name: str, owner: str, number: int) -> str:
    return f"{below(name, owner)}:rwlock_timeout:{number}"
