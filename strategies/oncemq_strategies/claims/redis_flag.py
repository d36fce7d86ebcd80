"""`redis_flag`: a flag in Redis for each message, for effects outside and apps without a database."""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Self

from sqlalchemy import Connection

from oncemq.common.durations import format_duration, parse_duration
from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Remembered, Scope
from oncemq.contracts.unit import Unit
from oncemq.contracts.verdict import DUPLICATE_IN_REDIS
from oncemq.contracts.verification import Answer, NotDone, Verify
from oncemq.errors import LedgerError, RedisRefused
from oncemq_strategies.claims.base import Claiming
from oncemq_strategies.claims.lease_renewal import ClaimKeeper
from oncemq_strategies.claims.options import lease_option, verify_option
from oncemq_strategies.claims.redis_flag_survey import flags_of_key, flags_of_keys
from oncemq_strategies.claims.redis_flags import Flags, scope_of_flags
from oncemq_strategies.claims.stored_messages import check_messages
from oncemq_strategies.claims.verify import Asker
from oncemq_strategies.common.fingerprint import Fingerprint, fingerprint_option
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.redis_permissions import missing_for_keys, sample
from oncemq_strategies.tiered.options import usual_ttl

_ENDS = ("success", "failed")


class RedisFlag(Claiming):
    """As `two_phase`, with its claims in Redis: faster, and no database is needed.

    Limits: Redis can lose a flag – by a failover that outran its replication, a restart without its last second of
    writes, eviction, FLUSHALL – and the message then runs again. Where that must never happen, a database must keep
    the claims: `two_phase`.

    Options, all optional:

    - `ttl: 7d`, or `ttl: {success: 7d, failed: 30d}`: minimum time that a handler's outcome is kept; not less than
      retries can take, which is the default with a margin. After that the message would run again.
    - `lease: 60s`: how long a dead process's flag is respected. A live one renews its flags.
    - `verify: "module:function"`: as for `two_phase`, called for handlers that failed or were interrupted.
    - `in_doubt: run`: instead of `verify`, for handlers that may run twice. Default: such a message becomes the
      dead letter `unknown-effect`.
    - `fingerprint: [body.amount, …]`: the same identity with other content is a Conflict.

    Messages published by the handler are stored in the app's database before its flag says success; without a database
    such a handler is refused. As for `two_phase`, `verify` publishes for a handler that was interrupted.

    The handler's result is kept as JSON (at most 64 KiB) and given to a duplicate.

    A dead process leaves flags, and its unacknowledged messages are redelivered. After `lease` the worker that receives
    one asks `verify`, or with `in_doubt: run` runs its handler. Without both the flag also says whether the handler was
    called: one that never was runs now. So there is nothing to reconcile in the background, and `oncemq reconcile`
    ignores flags.
    """

    _duplicate = DUPLICATE_IN_REDIS

    def __init__(
        self,
        scope: Scope,
        asker: Asker,
        lease: timedelta,
        ttl: Mapping[str, timedelta],
        fingerprint: Fingerprint | None,
    ) -> None:
        self._scope, self._consumer = scope, scope.consumer
        self.stores_outgoing = scope.engine is not None
        self._asker = asker
        self.ends_together = asker.can_ask
        self._fingerprint = fingerprint
        self._ttl = ttl
        self._client = scope.redis
        if scope.redis is not None:
            self._flags = Flags(
                scope.redis, scope.consumer, lease=lease, engine=scope.engine, begun=asker.can_ask, **ttl
            )
            self._book = self._flags
            self._keeper = ClaimKeeper(self._flags.renew, lease)

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user, tried with a flag that no message has."""
        if self._client is not None:
            yield from missing_for_keys(self._client, "flag", lambda: self._flags.try_out(sample()))

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("redis_flag", options, scope)
        given.known("ttl", "lease", "verify", "in_doubt", "fingerprint")
        asker = Asker(_verify(given), scope.publishers, silent=given.raw("in_doubt") == "run")
        return cls(scope, asker, lease_option(given), _ttl(given, scope), fingerprint_option(given))

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if self._client is None:
            yield Problem(
                "redis_flag needs Redis",
                'give the app redis: {url: "redis://localhost:6379/0"}',
                "strategies",
            )
        yield from check_messages("redis_flag", self._asker, facts)
        for end, lives in self._ttl.items():
            if lives < facts.retry_horizon:
                yield Problem(
                    f"{end} is remembered for {format_duration(lives)}, but a message can come back after "
                    f"{format_duration(facts.retry_horizon)} of retries and would run again",
                    f"set `ttl` to {format_duration(facts.retry_horizon)} or longer, or leave it out",
                    "strategies",
                )
        if not self._asker.can_ask:
            yield Problem(
                "redis_flag without `verify`: when a handler fails or its process dies, it is not known whether its "
                "effect happened, so the message is not tried again but becomes a dead letter",
                'write verify: "module:function", which returns Done, NotDone or Unknown; or in_doubt: run, if the '
                "handler may run twice",
                "strategies",
                Severity.WARNING,
            )

    def release(self, unit: Unit) -> None:
        """Release claims that were never started."""
        try:
            super().release(unit)
        finally:
            self._flags.forget(unit.owner)

    def inspect(self, connection: Connection, key: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return the key's flags."""
        if self._client is None:
            return {}
        found = flags_of_key(self._client, scope_of_flags(self._consumer, self._scope.engine), key)
        return {f"flag {identity}": words for identity, words in found.items()}

    def remembered(self, keys: Collection[str]) -> Iterable[Remembered]:
        """Yield the flags of these keys."""
        if self._client is not None:
            scope = scope_of_flags(self._consumer, self._scope.engine)
            for identity, flag in flags_of_keys(self._client, scope, keys).items():
                yield Remembered(identity, flag.key, flag.words, "" if flag.state in _ENDS else _AT_WORK)

    def forget(self, identities: Collection[str]) -> None:
        """Delete the flags of these messages.

        Raises:
            LedgerError: the handler of one of them may be running.
        """
        if self._client is not None and (busy := self._flags.remove(sorted(identities))):
            raise LedgerError(f"message {busy[0]} of {self._consumer}: {_AT_WORK}")


_AT_WORK = "its handler may be running; when the flag's lease is over, its message settles it"


def _verify(given: Options) -> Verify | None:
    runs = given.choice("in_doubt", ("reject", "run"), "reject") == "run"
    verify = verify_option(given)
    if verify is None:
        return _it_may_run_again if runs else None
    if runs:
        given.refuse("`verify` answers what `in_doubt: run` leaves open", "keep one of them", name="in_doubt")
    return verify


def _it_may_run_again(_envelope: object) -> Answer:
    return NotDone()


def _ttl(given: Options, scope: Scope) -> dict[str, timedelta]:
    usual = usual_ttl(scope)
    value = given.raw("ttl")
    if not isinstance(value, Mapping):
        ttl = given.duration("ttl") or usual
        return dict.fromkeys(_ENDS, ttl)
    unknown = [name for name in value if name not in _ENDS]
    if unknown:
        given.refuse(f"{unknown[0]!r} is not an outcome of a handler: write success or failed", name="ttl")
    try:
        return {
            end: parse_duration(str(value[end])) if value.get(end) is not None else usual for end in _ENDS
        }
    except ValueError as error:
        given.refuse(str(error), name="ttl")
