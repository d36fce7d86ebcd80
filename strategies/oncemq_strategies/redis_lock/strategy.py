"""`redis_lock`: a handler runs while its message's lock is held, shared with Java services on Redisson."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlalchemy import Connection

from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts, Effects, UnitKind
from oncemq.contracts.strategy import FencingToken, HeldLock, HeldLocks, Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import PROCEED, Culprits, Verdict, defer, reject, retry
from oncemq.errors import MessageRefused, RedisRefused
from oncemq.message.envelope import Delivery
from oncemq.message.identity import canonical_text
from oncemq.redis import RedisClient
from oncemq_strategies.common.name_template import NameTemplate
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.redis_permissions import NAME, missing_for, missing_for_channel, sample
from oncemq_strategies.redis_lock.fence import Fence
from oncemq_strategies.redis_lock.release_alarms import Alarms
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson.lease_keeper import Holding
from oncemq_strategies.redisson.names import BadLockName, channel_of, check_name
from oncemq_strategies.redisson.survey.locks import held_by, some_held

_LONGEST_PAUSE = timedelta(seconds=1.5)
"""A release may be missed, so a message that lacks its lock is also retried after this pause."""
_SHORTEST_PAUSE = timedelta(milliseconds=50)


class _Notes:
    """State of a unit: the lock of each delivery, lost locks, and higher numbers in the fence."""

    __slots__ = ("behind", "names", "tried")

    def __init__(self, names: dict[Delivery, str]) -> None:
        self.names = names
        self.tried = Tried()
        self.behind: dict[Item, int] = {}

    def holding(self, item: Item) -> Holding:
        return self.tried.held[self.names[item.delivery]]


class RedisLock(Strategy):
    """Only guards: another strategy of the list remembers applied messages.

    All locks of a unit are tried at once without waiting: a message whose lock is taken is tried again on its release.
    A release that does not reach Redis (outage, failover) is repeated every second. Before the
    commit Redis is asked whether the locks are still held; without an answer the transaction is rolled back.

    Options:

    - `name: "ride-lock-{key}"`: Redisson's name of a message's lock; between braces `key` or an expression.
    - `fence: {table: rides, key: ride_id, column: fence}`: every acquisition is numbered. The number is committed to
      the row before the handler reads, and a transaction whose row has a higher number than its lock is rolled back:
      so a holder that was paused for longer than its lease writes nothing. If another transaction has locked the row,
      the message is deferred. The handler receives its number as its parameter of type `FencingToken`.
    - `fenced: true`: numbered without such a column, for handlers that compare the `FencingToken` themselves.
    - `lease: 60s`: the lock is not renewed while the handler runs, but ends then. Default: renewed.
    - `replicas: 1`: a lock counts when so many replicas of its server have it.
    """

    traits: ClassVar[Traits] = Traits(
        decides=False, kinds=frozenset({UnitKind.TRANSACTIONAL, UnitKind.DIRECT}), per_consumer=True
    )

    def __init__(
        self,
        client: RedisClient | None,
        name: NameTemplate,
        fence: Fence | None,
        *,
        lease: timedelta | None,
        fenced: bool,
        replicas: int,
    ) -> None:
        self._client = client
        self._name = name
        self._fence = fence
        self._lease = lease
        self._fenced = fenced
        if client is not None:
            self._locks = UnitLocks(client, lease=lease, fenced=fenced, replicas=replicas)
            self._alarms = Alarms(client)

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("redis_lock", options, scope)
        given.known("name", "fence", "fenced", "lease", "replicas")
        try:
            name = NameTemplate(given.text("name"), scope.expression, _spelled)
        except ValueError as error:
            given.refuse(str(error), 'write it like name: "ride-lock-{key}"', name="name")
        lease = given.duration("lease")
        if lease is not None and lease < timedelta(seconds=1):
            given.refuse("a lease below a second is lost by any pause", "leave it out", name="lease")
        replicas = given.whole("replicas", 0)
        if replicas < 0:
            given.refuse("replicas cannot be negative", name="replicas")
        fence = Fence.of(given, scope) if given.has("fence") else None
        fenced = given.flag("fenced", default=fence is not None)
        if fence is not None and not fenced:
            given.refuse("a fence needs numbers", "leave `fenced` out", name="fenced")
        return cls(scope.redis, name, fence, lease=lease, fenced=fenced, replicas=replicas)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if self._client is None:
            yield Problem("redis_lock needs Redis", 'give the app redis: {url: "redis://localhost:6379/0"}')
        yield from self._check_lease(facts)
        if self._fence is not None and facts.effects is not Effects.DATABASE:
            yield Problem(
                "a fence is compared in the handler's transaction, but effects are external",
                "write effects: database; or fenced: true, and compare the FencingToken where the effect happens",
            )
        elif self._fence is not None:
            yield from self._fence.check()

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user, tried with a lock that no message has."""
        if self._client is not None:
            name, pattern = self._name.of_key(sample()), self._name.of_key("*")
            yield from _missing(self._client, self._locks, name, pattern, fenced=self._fenced)

    def _check_lease(self, facts: ConsumerFacts) -> Iterable[Problem]:
        if self._lease is None:
            return
        limit = facts.hard_limit or facts.soft_limit
        said = f"the lease of {format_duration(self._lease)} is not renewed, "
        if limit is None:
            yield Problem(
                said + "but nothing limits how long a handler takes: another may hold the lock meanwhile",
                "leave lease: out, so that it is renewed; or write limits: {hard: …} below it",
            )
        elif limit >= self._lease:
            yield Problem(
                said
                + f"but a handler may take {format_duration(limit)}: another may hold the lock meanwhile",
                f"leave lease: out, so that it is renewed; or make it longer than {format_duration(limit)}",
            )

    def provides(self) -> Mapping[type, Callable[[Run, Item], Any]]:
        """Return the fencing token, where acquisitions are numbered."""
        return {FencingToken: self._token} if self._fenced else {}

    def reserve(self, unit: Unit) -> None:
        """Try the locks of all deliveries at once; messages whose lock is taken are deferred until its release."""
        notes = unit.notes[self] = _Notes(self._names(unit))
        names = sorted(set(notes.names.values()))
        if not names:
            return
        began = time.monotonic()
        self._locks.acquire(names, unit.owner, notes.tried)
        for delivery, name in notes.names.items():
            if name in notes.tried.taken:
                unit.verdicts[delivery] = defer(_pause(notes.tried.taken[name]), f"lock {name!r} is taken")
                self._alarms.set(name, delivery.key, unit.resume, since=began)
            elif name in notes.tried.refused:
                unit.verdicts[delivery] = retry(
                    f"lock {name!r} cannot be acquired: {notes.tried.refused[name]}"
                )
            else:
                self._alarms.clear(name)
        self._raise_fence(unit, notes)

    def _raise_fence(self, unit: Unit, notes: _Notes) -> None:
        """Commit this unit's numbers before any handler reads: every later write of a late holder is refused."""
        if self._fence is None:
            return
        tokens: dict[str, int] = {}
        for delivery, name in notes.names.items():
            if delivery not in unit.verdicts:
                tokens[delivery.key] = max(notes.tried.held[name].token, tokens.get(delivery.key, 0))
        locked = self._fence.raise_now(tokens)
        for delivery in notes.names:
            if delivery.key in locked:
                unit.verdicts.setdefault(delivery, defer(_SHORTEST_PAUSE, "its fenced row is locked"))

    def decide(self, run: Run, item: Item) -> Verdict:
        """Let an item run whose lock is still held."""
        notes: _Notes = run.unit.notes[self]
        return PROCEED if notes.holding(item).valid else _lost(notes, item)

    def save(self, run: Run) -> None:
        """Write the tokens into the fence, which refuses an item that lost its lock to a later holder."""
        if self._fence is not None:
            notes: _Notes = run.unit.notes[self]
            tokens = {item: notes.holding(item).token for item in run.items if _ran(item)}
            self._fence.raise_to(run, tokens, notes.behind)

    def confirm(self, run: Run) -> None:
        """Roll back items whose lock was lost, according to Redis; in a direct unit the effect cannot be rolled back.

        Raises:
            Culprits: a lock was lost.
            RedisUnavailable: Redis does not answer; the transaction is rolled back and run again.
        """
        if run.direct:
            return
        notes: _Notes = run.unit.notes[self]
        ran = [item for item in run.items if _ran(item)]
        self._locks.confirm({id(holding): holding for holding in map(notes.holding, ran)}.values())
        lost = {item: _lost(notes, item) for item in ran if not notes.holding(item).valid}
        if lost:
            raise Culprits(lost)

    def release(self, unit: Unit) -> None:
        """Release all locks together; first, make their next numbers higher than any in the fence."""
        notes: _Notes | None = unit.notes.get(self)
        if notes is None:
            return
        try:
            self._locks.number_above(
                {notes.names[item.delivery]: number for item, number in notes.behind.items()}
            )
        finally:
            self._locks.release(notes.tried.held.values())

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return the holder of the lock of `key`, if the lock's name depends on the key alone."""
        if self._client is None or not self._name.of_key_alone:
            return {}
        name = self._name.of_key(key)
        return {f"lock {name}": str(held_by(self._client, name) or "free")}

    def locks(self, most: int) -> HeldLocks:
        """Return the held locks whose names its template could make; a Java service may hold one, too."""
        if self._client is None:
            return HeldLocks()
        found, complete = some_held(self._client, self._name.pattern(), most)
        return HeldLocks(
            [HeldLock(held.name, held.owner, held.ends_in, held.waiting) for held in found], complete
        )

    def _names(self, unit: Unit) -> dict[Delivery, str]:
        names = {}
        clustered = self._client is not None and self._client.clustered
        for delivery in unit.deliveries:
            if delivery in unit.verdicts:
                continue
            try:
                names[delivery] = check_name(self._name.of(unit, delivery), clustered=clustered)
            except MessageRefused as refusal:
                unit.verdicts[delivery] = reject(str(refusal), error=refusal, code=refusal.reason)
            except BadLockName as refusal:
                unit.verdicts[delivery] = reject(str(refusal), error=refusal)
        return names

    def _token(self, run: Run, item: Item) -> FencingToken:
        notes: _Notes = run.unit.notes[self]
        return FencingToken(notes.holding(item).token)


def _ran(item: Item) -> bool:
    return item.verdict is PROCEED


def _lost(notes: _Notes, item: Item) -> Verdict:
    return defer(
        _SHORTEST_PAUSE, f"lock {notes.names[item.delivery]!r} was lost while its message was worked on"
    )


def _pause(held_for: int) -> timedelta:
    return max(_SHORTEST_PAUSE, min(_LONGEST_PAUSE, timedelta(milliseconds=held_for)))


def _spelled(value: Any, field: str) -> str:
    return canonical_text(value, f"{field} in the name of its lock")


def _missing(
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
    yield from missing_for_channel(client, "a lock", channel_of(name), "&redisson_lock__channel:*")
