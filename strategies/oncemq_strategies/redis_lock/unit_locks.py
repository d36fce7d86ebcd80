"""Locks of a whole unit: acquired in one round trip, released in one."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.call import Call
from oncemq.redis.faults import Failure
from oncemq_strategies.redis_lock.unit_scripts import (
    ACQUIRE_MANY,
    ACQUIRE_MANY_FENCED,
    HELD_MANY,
    RELEASE_MANY,
)
from oncemq_strategies.redisson.lease_keeper import LEASE, Holding, Keeper, milliseconds
from oncemq_strategies.redisson.lock_scripts import RAISE, UNTOLD
from oncemq_strategies.redisson.names import channel_of, token_of
from oncemq_strategies.redisson.pending_releases import Release

T = TypeVar("T")

SHARE = 50
"""Locks per script where all live on one server: a script blocks all other clients."""

_WRONG_TYPE = "WRONGTYPE"


@dataclass(slots=True)
class Tried:
    """Result of acquiring the locks of a unit.

    Attributes:
        held: by name.
        taken: names held by other owners, with the milliseconds until their lease ends.
        refused: names that cannot be locked, with the error of Redis.
    """

    held: dict[str, Holding] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class UnitLocks:
    """Acquires and releases the locks of one strategy.

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
        """Try all `names` without waiting; locks that are held are in `tried` also when this fails.

        Raises:
            RedisUnavailable: Redis does not answer for some of them.
            RedisRefused: the Redis user lacks a permission.
        """
        owner = f"{self._keeper.id}:{owner}"
        failed = self._round(names, owner, tried)
        doubtful = {name for name, failure in failed.items() if failure.sent}
        try:
            if failed and len(doubtful) == len(failed):
                # An acquisition may be applied twice; a lock that is taken is tried again later.
                failed = self._round(list(failed), owner, tried)
        finally:
            for name in doubtful & failed.keys():
                # Its answer was lost: it may be ours, and then it would block other owners until the lease ends.
                held = Holding(name, owner, self._lease, time.monotonic(), watched=False)
                tried.held.setdefault(name, held)
        if failed:
            raise min(failed.values(), key=lambda failure: failure.sent)

    def number_above(self, tokens: Mapping[str, int]) -> None:
        """Make the next number of each lock higher than its token: Redis may have lost its counter.

        Raises:
            RedisUnavailable: Redis does not answer.
        """
        calls = [Call.of(RAISE, [token_of(name)], [token]) for name, token in tokens.items()]
        _raise_first(self._client.together(calls) if calls else [])

    def confirm(self, holdings: Iterable[Holding]) -> None:
        """Ask Redis whether these locks are still ours; one that is not is lost from now on.

        Raises:
            RedisUnavailable: Redis does not answer.
        """
        shares = self._shares([lock for lock in holdings if not lock.lost])
        calls = [
            Call.of(HELD_MANY, [lock.name for lock in share], [lock.owner for lock in share])
            for share in shares
        ]
        answers = list(self._answers(shares, calls))
        _raise_first(answer for _, _, answer in answers)
        for holding, _, answer in answers:
            if answer != 1:
                self._keeper.lose(holding)

    def release(self, holdings: Iterable[Holding]) -> None:
        """Release the locks that are still held.

        Raises:
            RedisUnavailable: Redis does not answer; the release is repeated until the locks have expired.
        """
        mine = [holding for holding in holdings if not holding.lost]
        for holding in mine:
            self._keeper.drop(holding)
        shares = self._shares(mine)
        answers = list(self._answers(shares, [self._release_call(share) for share in shares]))
        unheard = {call for _, call, answer in answers if isinstance(answer, RedisUnavailable)}
        if unheard:
            until = time.monotonic() + self._lease / 1000
            self._keeper.insist(Release(call, until) for call in unheard)
        _raise_first(answer for _, _, answer in answers)
        if any(answer == UNTOLD for _, _, answer in answers):
            self._keeper.untold(answers[0][0].name, channel_of(answers[0][0].name))

    @property
    def _keeper(self) -> Keeper:
        return self._client.shared(Keeper)

    def _round(self, names: Sequence[str], owner: str, tried: Tried) -> dict[str, RedisUnavailable]:
        sent = time.monotonic()
        shares = self._shares(names)
        calls = [self._acquire_call(share, owner) for share in shares]
        held: list[Holding] = []
        failed: dict[str, RedisUnavailable] = {}
        refusals: list[RedisRefused] = []
        for name, call, answer in self._answers(shares, calls):
            if isinstance(answer, RedisUnavailable):
                failed[name] = answer
            elif isinstance(answer, RedisRefused):
                if _WRONG_TYPE in str(answer):  # concerns this lock alone
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
        return failed

    def _taken(self, answer: Any) -> int | None:
        """Return the milliseconds until the holder's lease ends; None if the lock is ours."""
        if not self._fenced:
            return answer if isinstance(answer, int) else None
        ours, value = answer
        return None if ours == 1 else int(value)

    def _shares(self, locks: Sequence[T]) -> list[Sequence[T]]:
        """Return the locks of each script: in a cluster each lock may be moving by itself."""
        size = 1 if locks and self._client.clustered else SHARE
        return [locks[start : start + size] for start in range(0, len(locks), size)]

    def _answers(self, shares: Sequence[Sequence[T]], calls: Sequence[Call]) -> Iterator[tuple[T, Call, Any]]:
        """Call Redis, and yield each lock with its call and its answer or failure."""
        answers = self._client.together(calls) if calls else []
        for share, call, answer in zip(shares, calls, answers, strict=True):
            each = [answer] * len(share) if isinstance(answer, Failure) else map(_understood, answer)
            for lock, reply in zip(share, each, strict=True):
                yield lock, call, reply

    def _acquire_call(self, names: Sequence[str], owner: str) -> Call:
        script, keys = ACQUIRE_MANY, list(names)
        if self._fenced:
            script, keys = ACQUIRE_MANY_FENCED, [key for name in names for key in (name, token_of(name))]
        call = Call.of(script, keys, [self._lease, owner])
        if self._replicas:
            call.wait = (self._replicas, 1000)
        return call

    def _release_call(self, holdings: Sequence[Holding]) -> Call:
        words = [word for holding in holdings for word in (holding.owner, channel_of(holding.name))]
        return Call.of(
            RELEASE_MANY, [holding.name for holding in holdings], [int(self._client.clustered), *words]
        )


def _understood(answer: Any) -> Any:
    """Return a script's answer about one lock; an error text becomes a failure."""
    if isinstance(answer, bytes):
        answer = answer.decode(errors="replace")
    return RedisRefused(f"Redis refused: {answer}") if isinstance(answer, str) else answer


def _raise_first(answers: Iterable[Any]) -> None:
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    if failures:
        raise failures[0]
