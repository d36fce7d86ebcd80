"""Tries what a strategy does in Redis on names that no message has, and says which rule of the user is missing."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson.names import channel_of

NAME = "oncemq-check"
"""In the names that are tried; nothing of them is left."""
_CHANNELS = "&redisson_lock__channel:*"


def sample() -> str:
    """Return a value that no message has."""
    return f"{NAME}-{uuid4().hex[:12]}"


def missing_for(
    client: RedisClient, what: str, rules: str, attempt: Callable[[], Any]
) -> Iterator[RedisRefused]:
    """Yield why an attempt is refused, with the command that permits it; nothing if it works.

    Args:
        client: whose user it is about.
        what: is attempted, such as `locking`.
        rules: of ACL SETUSER.
        attempt: does it.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    try:
        attempt()
    except RedisRefused as error:
        yield RedisRefused(
            f"{what} is not permitted in {client.where}: {error} – let it by ACL SETUSER {_user(client)} {rules}"
        )


def missing_for_locks(
    client: RedisClient, locks: UnitLocks, name: str, pattern: str, *, fenced: bool
) -> Iterator[RedisRefused]:
    """Yield what a user may not do that a chain with locks needs: keys, scripts, messages.

    Args:
        client: whose user.
        locks: as the strategy makes them.
        name: of a lock that no message has.
        pattern: of all its locks.
        fenced: they are numbered.
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


def missing_for_keys(client: RedisClient, kind: str, attempt: Callable[[], Any]) -> Iterator[RedisRefused]:
    """Yield what a user may not do that keeps something about identities in Redis.

    Args:
        client: whose user.
        kind: of what is kept: `mark` or `flag`.
        attempt: keeps it, asks for it and removes it.
    """
    yield from missing_for(
        client, f"keeping a {kind}", f"~oncemq:{kind}:* +@read +@write +@scripting", attempt
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


def _user(client: RedisClient) -> str:
    with suppress(RedisRefused):
        answer = client.at(client.routes.masters()[0], "ACL", "WHOAMI")
        return answer.decode() if isinstance(answer, bytes) else str(answer)
    return "<user>"
