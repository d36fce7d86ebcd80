"""Tries a strategy's Redis commands on names that no message has, and reports the missing ACL rule."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient
from oncemq.redis.call import Call

NAME = "oncemq-check"
"""Part of the tried names; nothing of them remains."""


def sample() -> str:
    """Return a value that no message has."""
    return f"{NAME}-{uuid4().hex[:12]}"


def missing_for(
    client: RedisClient, what: str, rules: str, attempt: Callable[[], Any]
) -> Iterator[RedisRefused]:
    """Yield why an attempt is refused, with the command that permits it; nothing if it works.

    Args:
        client: of the checked user.
        what: the attempted action, such as `locking`.
        rules: of ACL SETUSER.
        attempt: performs it.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    try:
        attempt()
    except RedisRefused as error:
        yield RedisRefused(
            f"{what} is not permitted in {client.where}: {error} – grant it with ACL SETUSER {_user(client)} {rules}"
        )


def missing_for_keys(client: RedisClient, kind: str, attempt: Callable[[], Any]) -> Iterator[RedisRefused]:
    """Yield missing permissions of a user that keeps data about identities in Redis.

    Args:
        client: of the checked user.
        kind: `mark` or `flag`.
        attempt: writes, reads and deletes such a key.
    """
    yield from missing_for(
        client, f"keeping a {kind}", f"~oncemq:{kind}:* +@read +@write +@scripting", attempt
    )


def missing_for_channel(client: RedisClient, what: str, channel: str, rule: str) -> Iterator[RedisRefused]:
    """Yield missing permissions of a user for the messages by which those who wait are woken.

    Args:
        client: of the checked user.
        what: they wait for, such as `a lock`.
        channel: that no message has.
        rule: of all such channels.
    """
    place, clustered = client.routes.masters()[0], client.clustered

    def publish() -> None:
        client.at(place, "PUBLISH", channel, "0")
        if clustered:
            client.call(Call(channel, ("SPUBLISH", channel, "0")))

    yield from missing_for(
        client,
        f"waking those who wait for {what}",
        f"{rule} +publish" + (" +spublish" if clustered else ""),
        publish,
    )
    yield from missing_for(
        client,
        f"waiting for {what}",
        f"{rule} +subscribe +unsubscribe" + (" +ssubscribe +sunsubscribe" if clustered else ""),
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


def _user(client: RedisClient) -> str:
    with suppress(RedisRefused):
        answer = client.at(client.routes.masters()[0], "ACL", "WHOAMI")
        return answer.decode() if isinstance(answer, bytes) else str(answer)
    return "<user>"
