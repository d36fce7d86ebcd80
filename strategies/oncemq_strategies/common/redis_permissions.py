"""Tries a strategy's Redis commands on names that no message has, and reports the missing ACL rule."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient

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


def _user(client: RedisClient) -> str:
    with suppress(RedisRefused):
        answer = client.at(client.routes.masters()[0], "ACL", "WHOAMI")
        return answer.decode() if isinstance(answer, bytes) else str(answer)
    return "<user>"
