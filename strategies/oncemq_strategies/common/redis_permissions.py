"""Tries what a strategy does in Redis on names that no message has, and says which rule of the user is missing."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from oncemq.errors import RedisRefused
from oncemq.redis import RedisClient

NAME = "oncemq-check"
"""In the names that are tried; nothing of them is left."""


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


def _user(client: RedisClient) -> str:
    with suppress(RedisRefused):
        answer = client.at(client.routes.masters()[0], "ACL", "WHOAMI")
        return answer.decode() if isinstance(answer, bytes) else str(answer)
    return "<user>"
