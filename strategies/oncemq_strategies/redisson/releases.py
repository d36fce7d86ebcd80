"""Takes locks and permits of any kind away from their holders, for operators."""

from collections.abc import Sequence

from oncemq.redis import RedisClient
from oncemq.redis.call import Argument
from oncemq_strategies.redisson.names import below, read_write_channel_of, semaphore_channel_of
from oncemq_strategies.redisson.read_write.scripts import RELEASE_READ, RELEASE_WRITE
from oncemq_strategies.redisson.semaphores.counting import Semaphore
from oncemq_strategies.redisson.semaphores.scripts import GIVE_LEASE
from oncemq_strategies.redisson.survey.locks import READ, WRITE, Held, force_release, holders
from oncemq_strategies.redisson.survey.permits import PERMIT, SEMAPHORE, permits_of, semaphores_at


def found_at(client: RedisClient, name: str) -> Sequence[Held]:
    """Return who holds a lock of any kind, or permits of a semaphore; one without owners is one entry.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    return holders(client, name) or permits_of(client, name) or semaphores_at(client, [name])


def take_away(client: RedisClient, held: Held, permits: int = 0) -> bool:
    """Release what one holder has, wake who waits, and return whether it still had it.

    The holder is not stopped: it goes on as if it had the lock, until its watchdog notices.

    Args:
        client: the Redis.
        held: as found.
        permits: how many to give back, of a semaphore without owners.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    if held.kind == SEMAPHORE:
        Semaphore(client, held.name).release(permits)
        return True
    if held.kind == PERMIT:
        return _give(client, held)
    if held.kind not in {READ, WRITE}:
        return force_release(client, held.name)
    # With no hold left, no lease is set.
    words: list[Argument] = [0, held.owner, 0, int(client.clustered), read_write_channel_of(held.name)]
    if held.kind == WRITE:
        return client.run(RELEASE_WRITE, [held.name], words) is not None
    own = below(held.name, f"{held.owner}:rwlock_timeout:1")
    return client.run(RELEASE_READ, [held.name, own], [*words, below(held.name, "")[:-1]]) is not None


def _give(client: RedisClient, held: Held) -> bool:
    keys = [held.name, below(held.name, "timeout")]
    words: list[Argument] = [
        int(client.clustered),
        semaphore_channel_of(held.name),
        bytes.fromhex(held.owner),
    ]
    return bool(client.run(GIVE_LEASE, keys, words))
