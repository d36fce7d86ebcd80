"""Marks in Redis: which messages the database has as applied, so that it need not be asked about their copies."""

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.common.redis_circuit import Circuit

_AT_ONCE = 500
_JITTER = 0.1
"""Marks that were set together end up to so much of their time apart, and never early."""


def key_in_redis(kind: str, scope: str, identity: str) -> str:
    """Return the key of what is kept about an identity.

    Without braces, so that a cluster places each identity by its whole text: those that begin alike are spread
    over all slots.
    """
    if "{" in identity or "%" in identity:
        identity = identity.replace("%", "%25").replace("{", "%7B")
    return f"oncemq:{kind}:{scope}:{identity}"


class Marks:
    """The marks of one consumer; each holds the fingerprint of what was applied, or nothing.

    Args:
        client: where they are.
        scope: the consumer's, and which ledger it is that they speak of.
        keep: how long a mark lives at least.
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
        """Return the fingerprint of each identity that is marked, in one round trip; None when nobody can say."""
        answers = self._circuit.ask(lambda: self._questions(identities))
        if answers is None:
            return None
        if len(answers) != len(identities):
            answers = [one for several in answers for one in _spread(several)]
            if len(answers) != len(identities):
                return None  # a part of them failed
        return {
            identity: _text(answer)
            for identity, answer in zip(identities, answers, strict=True)
            if answer is not None and not isinstance(answer, Failure)
        }

    def set(self, prints: Mapping[str, str]) -> list[Call]:
        """Return the calls that mark identities which the database has, each with its fingerprint."""
        return [self._mark(identity, print_) for identity, print_ in prints.items()]

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
