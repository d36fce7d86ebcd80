"""Tries the Redis commands of locks, and reports the ACL rule that the Redis user lacks."""

from collections.abc import Iterator
from contextlib import suppress

from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient
from oncemq_strategies.common.redis_permissions import NAME, missing_for
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson.names import channel_of

_CHANNELS = "&redisson_lock__channel:*"


def missing_for_locks(
    client: RedisClient, locks: UnitLocks, name: str, pattern: str, *, fenced: bool
) -> Iterator[RedisRefused]:
    """Yield missing permissions for a chain with locks: keys, scripts, pub/sub.

    Args:
        client: of the checked user.
        locks: as the strategy makes them.
        name: of a lock that no message has.
        pattern: of all its locks.
        fenced: acquisitions are numbered.
    """
    keys = f"~{pattern}" + (" ~redisson_lock_token:*" if fenced else "")

    def acquire_and_release() -> None:
        tried = Tried()
        locks.acquire([name], NAME, tried)
        locks.confirm(tried.held.values())
        locks.release(tried.held.values())
        if tried.refused:
            raise RedisRefused(next(iter(tried.refused.values())))

    yield from missing_for(client, "locking", f"{keys} +@read +@write +@scripting", acquire_and_release)
    channel = channel_of(name)
    place = client.routes.masters()[0]
    yield from missing_for(
        client,
        "waking those who wait for a lock",
        f"{_CHANNELS} +publish" + (" +spublish" if client.clustered else ""),
        lambda: client.at(place, "PUBLISH", channel, "0"),
    )
    yield from missing_for(
        client,
        "waiting for a lock's release",
        f"{_CHANNELS} +subscribe +unsubscribe" + (" +ssubscribe +sunsubscribe" if client.clustered else ""),
        lambda: _subscribe(client, place, channel),
    )


def _subscribe(client: RedisClient, place: str, channel: str) -> None:
    connection = client.routes.own(place)
    try:
        connection.send_command("SUBSCRIBE", channel)
        connection.read_response()
    except Exception as error:
        raise RedisRefused(str(error)) from error
    finally:
        with suppress(Exception):
            connection.disconnect()
