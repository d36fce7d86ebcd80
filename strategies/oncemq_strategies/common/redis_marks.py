"""Marks in Redis for messages that the database has applied, so that copies need no database query."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.common.redis_circuit import Circuit

_AT_ONCE = 500
_JITTER = 0.1
"""Spread of the lifetimes of marks set together, as a share; never shortens one."""


def key_in_redis(kind: str, scope: str, identity: str) -> str:
    """Return the Redis key for an identity.

    Without braces, so that a cluster places each identity by its whole text: those with equal beginnings are spread
    over all slots.
    """
    if "{" in identity or "%" in identity:
        identity = identity.replace("%", "%25").replace("{", "%7B")
    return f"oncemq:{kind}:{scope}:{identity}"


class Marks:
    """Marks of one consumer; each holds the fingerprint of the applied message, or nothing.

    Args:
        client: of the Redis that keeps them.
        scope: of the consumer, and the ledger that they describe.
        keep: minimum lifetime of a mark.
    """

    def __init__(self, client: RedisClient, scope: str, keep: timedelta) -> None:
        self._client = client
        self._circuit = client.shared(Circuit)
        self._scope = scope
        self._milliseconds = max(1, round(keep.total_seconds() * 1000))

    @property
    def failing(self) -> bool:
        """Whether Redis has failed and is not asked for now."""
        return self._circuit.open

    def look_up(self, identities: Sequence[str]) -> dict[str, str] | None:
        """Return the fingerprint of each marked identity, in one round trip; None while unknown."""
        answers = self._circuit.ask(lambda: self._questions(identities))
        if answers is None:
            return None
        if len(answers) != len(identities):
            answers = [mark for several in answers for mark in _spread(several)]
            if len(answers) != len(identities):
                return None  # some failed
        return {
            identity: _text(answer)
            for identity, answer in zip(identities, answers, strict=True)
            if answer is not None and not isinstance(answer, Failure)
        }

    def set(self, prints: Mapping[str, str]) -> list[Call]:
        """Return the calls that mark applied identities, each with its fingerprint."""
        return [self._mark(identity, print_) for identity, print_ in prints.items()]

    def remove(self, identities: Collection[str]) -> list[Call]:
        """Return the calls that remove the marks of these messages."""
        names = [self.name(identity) for identity in identities]
        return [Call(name, ("DEL", name)) for name in names]

    def name(self, identity: str) -> str:
        """Return the key of a mark."""
        return key_in_redis("mark", self._scope, identity)

    def _questions(self, identities: Sequence[str]) -> list[Call]:
        names = [self.name(identity) for identity in identities]
        if self._client.clustered or len(names) == 1:
            return [Call(name, ("GET", name)) for name in names]
        starts = range(0, len(names), _AT_ONCE)
        return [Call(names[start], ("MGET", *names[start : start + _AT_ONCE])) for start in starts]

    def _mark(self, identity: str, print_: str) -> Call:
        name = self.name(identity)
        lives = round(self._milliseconds * (1 + _JITTER * random.random()))  # noqa: S311 - no secret
        return Call(name, ("SET", name, print_, "PX", lives))


def _spread(answer: Any) -> Iterator[Any]:
    if isinstance(answer, list):
        yield from answer


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
