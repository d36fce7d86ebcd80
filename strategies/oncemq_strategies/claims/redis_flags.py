"""Flags of one consumer in Redis: messages in progress, and how their handlers ended."""

import json
import random
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.sql.column_types import storable
from oncemq.message.envelope import Envelope
from oncemq.redis import RedisClient
from oncemq.redis.call import Argument, Call, Script
from oncemq.redis.faults import Failure
from oncemq_strategies.claims.ledger_claims import Held, Phase, Wanted
from oncemq_strategies.claims.redis_flag_scripts import CLAIM, DROP, FINISH, FORGET, MOVE, RENEW
from oncemq_strategies.claims.stored_messages import Doubt, Finish, Messages
from oncemq_strategies.common.coalescing import Together
from oncemq_strategies.common.own_transaction import in_transaction
from oncemq_strategies.common.redis_marks import key_in_redis

_JITTER = 0.1
_SHARE = 3
"""A claim older than this part of its lease is looked at again before its handler begins."""


class Flags:
    """Takes and releases claims as `Book` says; a whole unit's in one round trip.

    Args:
        client: of the Redis that keeps them.
        consumer: the consumer's scope.
        lease: how long a claim lives without renewal.
        success: minimum time that a successful outcome is kept.
        failed: the same, for an unknown outcome.
        engine: the database that stores messages published by handlers; None without one.
    """

    def __init__(
        self,
        client: RedisClient,
        consumer: str,
        *,
        lease: timedelta,
        success: timedelta,
        failed: timedelta,
        engine: Engine | None = None,
        begun: bool = False,
    ) -> None:
        self._client = client
        self._engine = engine
        self._consumer = consumer
        self._scope: str | None = None
        self._claimed = "started" if begun else "pending"
        self._lease = _milliseconds(lease)
        self._success = success
        self._failed = failed
        self._mine: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        self._mutex = threading.Lock()
        self._calling = Together(self._call)

    def name(self, identity: str) -> str:
        """Return the key of a flag."""
        if self._scope is None:
            self._scope = scope_of_flags(self._consumer, self._engine)
        return key_in_redis("flag", self._scope, identity)

    def take(self, envelopes: Iterable[Envelope], owner: str) -> dict[str, Held]:
        """Do so for one owner."""
        first: dict[str, Envelope] = {}
        for envelope in envelopes:
            first.setdefault(envelope.identity, envelope)
        return self.take_all([Wanted(owner, first)])[0]

    def take_all(self, wanted: Sequence[Wanted]) -> Sequence[dict[str, Held]]:
        """Claim free identities and take over abandoned ones; returns for each owner the state of each, by identity.

        Raises:
            RedisUnavailable: not every answer arrived; some may be claimed.
        """
        now = time.monotonic()
        with self._mutex:
            for owner, envelopes in wanted:
                self._mine.setdefault(owner, set()).update(envelopes)
                self._since.setdefault(owner, now)
        lives = self._lives_held()
        calls = [
            Call.of(CLAIM, [self.name(identity)], (owner, self._lease, lives, envelope.key, self._claimed))
            for owner, envelopes in wanted
            for identity, envelope in envelopes.items()
        ]
        answers = iter(self._all(calls))
        return [{identity: _held(next(answers)) for identity in envelopes} for _, envelopes in wanted]

    def try_out(self, identity: str) -> None:
        """Claim an identity that no message has, and drop the claim.

        Raises:
            RedisUnavailable: no answer.
            RedisRefused: the Redis user lacks the permission.
        """
        self._each(
            [identity], lambda _: (CLAIM, (identity, self._lease, self._lives_held(), identity, "pending"))
        )
        self._each([identity], lambda _: (DROP, (identity,)))

    def start(self, identities: Sequence[str], owner: str) -> Sequence[str]:
        """Record that the handlers of these begin now; returns those that are no longer ours."""
        if not self.start_waits(owner):
            return ()
        answers = self._each(identities, lambda _: (MOVE, (owner, self._lease, "pending", "started")))
        return [identity for identity, answer in zip(identities, answers, strict=True) if answer != 1]

    def start_waits(self, owner: str) -> bool:
        """Return whether claims do not say yet that their handlers begin, or are so old that they may have been lost."""
        age = (time.monotonic() - self._since.get(owner, 0.0)) * 1000
        return self._claimed != "started" or age > self._lease / _SHARE

    def undone(self, identity: str, owner: str) -> bool:
        """Let the handler of a verified claim run; returns whether the claim was still ours."""
        return self._one(identity, MOVE, owner, self._lease, "checking", self._claimed)

    def finish_all(self, ends: Sequence[Finish]) -> Sequence[bool]:
        """Record that effects happened, in one round trip; returns for each whether the claim was ours.

        Their messages are stored in the database before: if a process dies in between, they are sent and `verify` is asked.
        """
        self._store([end.messages for end in ends if end.messages is not None])
        calls = [
            Call.of(
                FINISH,
                [self.name(end.identity)],
                (end.owner, "success", _jittered(self._success), end.result or "", end.fingerprint or "", ""),
            )
            for end in ends
        ]
        return [answer == 1 for answer in self._all(calls)]

    def _store(self, messages: Sequence[Messages]) -> None:
        for each in messages:
            if self._engine is not None and not each.committed:
                in_transaction(self._engine, each.store)
                each.committed = True

    def doubt(
        self,
        identity: str,
        owner: str,
        reason: str,
        *,
        ask_in: timedelta = timedelta(0),  # noqa: ARG002 - nothing is verified in the background
        fingerprint: str | None = None,
    ) -> bool:
        """Record that the effect may have happened; returns whether the claim was ours."""
        return self._doubt([Doubt(identity, owner, reason, fingerprint)]) == [True]

    def doubt_all(self, doubts: Sequence[Doubt]) -> None:
        """Record that several effects may have happened, in one round trip."""
        self._doubt(doubts)

    def _doubt(self, doubts: Sequence[Doubt]) -> list[bool]:
        calls = [
            Call.of(
                FINISH,
                [self.name(doubt.identity)],
                (
                    doubt.owner,
                    "failed",
                    _jittered(self._failed),
                    "",
                    doubt.fingerprint or "",
                    storable(doubt.reason),
                ),
            )
            for doubt in doubts
        ]
        return [answer == 1 for answer in self._all(calls)]

    def drop_all(self, claims: Sequence[tuple[str, str]]) -> None:
        """Delete claims of several owners in one round trip: identity and owner of each."""
        self._all([Call.of(DROP, [self.name(identity)], (owner,)) for identity, owner in claims])

    def drop(self, identities: Sequence[str], owner: str) -> None:
        """Delete our claims whose handler certainly had no effect."""
        self._each(identities, lambda _: (DROP, (owner,)))

    def remove(self, identities: Sequence[str]) -> Sequence[str]:
        """Delete the outcomes of these messages; returns those whose handler may be running, whose flags stay."""
        answers = self._each(identities, lambda _: (FORGET, ()))
        return [identity for identity, answer in zip(identities, answers, strict=True) if answer != 1]

    def renew(self, owners: set[str]) -> None:
        """Renew all claims of these owners, in one round trip."""
        with self._mutex:
            held = [
                (owner, identity)
                for owner in sorted(owners)
                for identity in sorted(self._mine.get(owner, ()))
            ]
        lives = self._lives_held()
        calls = [
            Call.of(RENEW, [self.name(identity)], [owner, self._lease, lives]) for owner, identity in held
        ]
        _all_well(self._client.together(calls) if calls else [])

    def forget(self, owner: str) -> None:
        """Stop renewing the claims of this owner."""
        with self._mutex:
            self._mine.pop(owner, None)
            self._since.pop(owner, None)

    def _lives_held(self) -> int:
        """Return how long Redis keeps an unrenewed flag: its lease, then as any outcome."""
        return self._lease + _jittered(max(self._success, self._failed))

    def _one(self, identity: str, script: Script, *arguments: Argument) -> bool:
        return bool(self._each([identity], lambda _: (script, arguments)) == [1])

    def _each(self, identities: Iterable[str], what: Any) -> list[Any]:
        calls = []
        for identity in identities:
            script, arguments = what(identity)
            calls.append(Call.of(script, [self.name(identity)], arguments))
        return self._all(calls)

    def _all(self, calls: Sequence[Call]) -> list[Any]:
        return _all_well(self._calling.ask(calls)) if calls else []

    def _call(self, many: Sequence[Sequence[Call]]) -> list[list[Any]]:
        """Make the calls of several units in one round trip; each finds its own failures among its answers."""
        answers = iter(self._client.together([call for calls in many for call in calls]))
        return [list(islice(answers, len(calls))) for calls in many]


def scope_of_flags(consumer: str, engine: Engine | None) -> str:
    """Return the scope whose flags are trusted: after a restore of the app's database, not those from before it."""
    since = schema.epoch(engine) if engine is not None else ""
    return f"{consumer}:{since}" if since else consumer


def _all_well(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Failure):
            raise answer
    return answers


def _held(answer: list[Any]) -> Held:
    status, *more = [field.decode() if isinstance(field, bytes) else str(field) for field in answer]
    if status == "ours":
        return Held(Phase.OURS)
    if status == "foreign":
        return Held(Phase.FOREIGN)
    if status == "success":
        result = json.loads(more[0]) if more[0] else None
        return Held(Phase.DONE, result=result, has_result=True, fingerprint=more[1] or None)
    return Held(Phase.DOUBTFUL, reason=more[0], fingerprint=more[1] or None)


def _jittered(lives: timedelta) -> int:
    return round(_milliseconds(lives) * (1 + _JITTER * random.random()))  # noqa: S311 - no secret


def _milliseconds(time: timedelta) -> int:
    return max(1, round(time.total_seconds() * 1000))
