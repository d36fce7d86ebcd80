"""Locks and semaphores of handlers' parameters for operators: what is held now, and what their Redis user may not do."""

from collections.abc import Callable, Iterable
from typing import Final, Literal

from oncemq.contracts.strategy import HeldLock, HeldLocks
from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient
from oncemq_strategies.common.name_template import NameTemplate
from oncemq_strategies.common.redis_permissions import missing_for_channel, sample
from oncemq_strategies.redisson.names import (
    channel_of,
    read_write_channel_of,
    semaphore_channel_of,
)
from oncemq_strategies.redisson.survey.locks import LOCK, READ, WRITE, Held, some_held
from oncemq_strategies.redisson.survey.permits import (
    all_semaphores,
    some_permits,
    some_semaphores,
)

Kind = Literal["lock", "read-write lock", "semaphore", "expirable semaphore"]


_CHANNELS: Final[dict[Kind, tuple[Callable[[str], str], str]]] = {
    "lock": (channel_of, "&redisson_lock__channel:*"),
    "read-write lock": (read_write_channel_of, "&redisson_rwlock:*"),
    "semaphore": (semaphore_channel_of, "&redisson_sc:*"),
    "expirable semaphore": (semaphore_channel_of, "&redisson_sc:*"),
}
"""The channel in which a release is published, and the rule for all of its kind."""


class HandlerLock:
    """What a parameter of a handler locks.

    Args:
        client: the app's Redis.
        name: its names.
        kind: what it is.
    """

    def __init__(self, client: RedisClient, name: NameTemplate, kind: Kind) -> None:
        self._client = client
        self._name = name
        self._kind = kind
        self.names = name.pattern()

    def locks(self, most: int) -> HeldLocks:
        """Return what is held now by such a name; a Java service may hold one, too."""
        found, complete = self._found(most)
        return HeldLocks([_shown(held) for held in found], complete)

    def semaphores(self) -> Iterable[Held]:
        """Yield the semaphores whose permits have no owners; nothing if it is another kind."""
        return all_semaphores(self._client, self.names) if self._kind == "semaphore" else ()

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user for the channels, tried with a name that no message has."""
        channel_of_name, rule = _CHANNELS[self._kind]
        article = "an" if self._kind.startswith("e") else "a"
        yield from missing_for_channel(
            self._client, f"{article} {self._kind}", channel_of_name(sample()), rule
        )

    def _found(self, most: int) -> tuple[Iterable[Held], bool]:
        match self._kind:
            case "lock":
                return some_held(self._client, self.names, most, (LOCK,))
            case "read-write lock":
                return some_held(self._client, self.names, most, (READ, WRITE))
            case "semaphore":
                return some_semaphores(self._client, self.names, most)
            case _:
                return some_permits(self._client, self.names, most)


def _shown(held: Held) -> HeldLock:
    return HeldLock(held.name, held.owner, held.ends_in, held.waiting, held.kind, held.left)
