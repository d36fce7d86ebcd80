"""The locks of a whole unit: tried in one round trip, given back in one."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redis.keeper import LEASE, Holding, Keeper, milliseconds
from oncemq_strategies.redis.names import channel_of, token_of
from oncemq_strategies.redis.scripts import ACQUIRE, ACQUIRE_FENCED, RAISE, RELEASE

_WRONG_TYPE = "WRONGTYPE"
_ANSWERED_ONE_BY_ONE = 2


@dataclass(slots=True)
class Tried:
    """What became of the locks of a unit.

    Attributes:
        held: by name.
        taken: names that somebody else holds, with the milliseconds until that lease ends.
        refused: names that cannot be locked, with Redis' own words.
    """

    held: dict[str, Holding] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class UnitLocks:
    """How one strategy acquires locks.

    Args:
        client: where.
        lease: None = 30 s, renewed; else not renewed.
        fenced: acquisitions are numbered.
        replicas: that must have a lock before it counts; 0 = none.
    """

    def __init__(self, client: RedisClient, *, lease: timedelta | None, fenced: bool, replicas: int) -> None:
        self._client = client
        self._watched = lease is None
        self._lease = milliseconds(lease or LEASE)
        self._fenced = fenced
        self._replicas = replicas

    def acquire(self, names: Sequence[str], owner: str, tried: Tried) -> None:
        """Try all of `names` without waiting for any; what is held stands in `tried` also when this fails.

        Raises:
            RedisUnavailable: Redis does not answer for some of them.
            RedisRefused: Redis may not be asked so.
        """
        owner = f"{self._keeper.id}:{owner}"
        left, failure = list(names), None
        for _ in range(_ANSWERED_ONE_BY_ONE):
            left, failure = self._round(left, owner, tried)
            if failure is None or not failure.sent:
                break  # an acquisition may be applied twice; what was refused for now shall be tried later
        if failure is not None:
            for name in left:
                # Its answer was lost: perhaps it is ours, and nobody else could have it until the lease ends.
                tried.held.setdefault(
                    name, Holding(name, owner, self._lease, time.monotonic(), watched=False)
                )
            raise failure

    def number_above(self, tokens: Mapping[str, int]) -> None:
        """Have the next acquisition of each lock numbered higher than this: Redis may have forgotten how far it was.

        Raises:
            RedisUnavailable: Redis does not answer.
        """
        calls = [Call.of(RAISE, [token_of(name)], [token]) for name, token in tokens.items()]
        _raise_first(self._client.together(calls) if calls else [])

    def release(self, holdings: Iterable[Holding]) -> None:
        """Give back what is still held.

        Raises:
            RedisUnavailable: Redis does not answer; the locks free themselves within their leases.
        """
        mine = [holding for holding in holdings if not holding.lost]
        for holding in mine:
            self._keeper.drop(holding)
        calls = [self._release_call(holding) for holding in mine]
        _raise_first(self._client.together(calls) if calls else [])

    @property
    def _keeper(self) -> Keeper:
        return self._client.shared(Keeper)

    def _round(
        self, names: Sequence[str], owner: str, tried: Tried
    ) -> tuple[list[str], RedisUnavailable | None]:
        sent = time.monotonic()
        calls = [self._acquire_call(name, owner) for name in names]
        held: list[Holding] = []
        failed: dict[str, RedisUnavailable] = {}
        refusals: list[RedisRefused] = []
        for name, call, answer in zip(names, calls, self._client.together(calls), strict=True):
            if isinstance(answer, RedisUnavailable):
                failed[name] = answer
            elif isinstance(answer, RedisRefused):
                if _WRONG_TYPE in str(answer):  # about this lock alone
                    tried.refused[name] = str(answer)
                else:
                    refusals.append(answer)
            elif (taken := self._taken(answer)) is not None:
                tried.taken[name] = taken
            else:
                token = answer[1] if self._fenced else 0
                holding = Holding(name, owner, self._lease, sent, watched=self._watched, token=token)
                tried.held[name] = holding
                held.append(holding)
                if call.acknowledged < self._replicas:
                    failed[name] = RedisUnavailable(f"lock {name!r} did not reach {self._replicas} replicas")
        self._keeper.add_all(held)
        if refusals:
            raise refusals[0]
        lost = [one for one in failed.values() if not one.sent]
        return list(failed), next(iter(lost or failed.values()), None)

    def _taken(self, answer: Any) -> int | None:
        """Return the milliseconds until another's lease ends; None when the lock is ours."""
        if not self._fenced:
            return answer if isinstance(answer, int) else None
        ours, value = answer
        return None if ours == 1 else int(value)

    def _acquire_call(self, name: str, owner: str) -> Call:
        keys = [name, token_of(name)] if self._fenced else [name]
        call = Call.of(ACQUIRE_FENCED if self._fenced else ACQUIRE, keys, [self._lease, owner, 1])
        if self._replicas:
            call.wait = (self._replicas, 1000)
        return call

    def _release_call(self, holding: Holding) -> Call:
        clustered = int(self._client.clustered)
        return Call.of(
            RELEASE,
            [holding.name],
            [holding.lease, holding.owner, 0, clustered, channel_of(holding.name)],
        )


def _raise_first(answers: Iterable[Any]) -> None:
    failures = [one for one in answers if isinstance(one, Failure)]
    if failures:
        raise failures[0]
