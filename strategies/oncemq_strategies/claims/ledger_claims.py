"""Claims of one unit: ours, those of other owners, and those with an unknown outcome."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine

from oncemq.common.clock import Clock
from oncemq.ledger.records.claims import Claim, Claims, End, NewClaim, State
from oncemq.message.envelope import Envelope
from oncemq.message.stored import to_text
from oncemq_strategies.claims.stored_messages import Doubt, Finish, OfHandler
from oncemq_strategies.common.coalescing import Together
from oncemq_strategies.common.own_transaction import TRIES, in_transaction

Result = TypeVar("Result")


class Phase(Enum):
    """How far a unit has come with an identity."""

    OURS = auto()
    """Claimed; its handler has not been called."""
    STARTED = auto()
    """Its handler was called, and the outcome has not been recorded."""
    DOUBTFUL = auto()
    """Ours to verify."""
    FOREIGN = auto()
    """Another owner is processing it."""
    DONE = auto()
    UNKNOWN = auto()
    UNANSWERED = auto()
    GONE = auto()
    """Recorded and released in this unit; another copy starts again."""


@dataclass(slots=True)
class Held:
    """One identity in one unit.

    Args:
        phase: its progress.
        claim: as found in the ledger; None for a new one.
        result: returned by a handler that ran in this unit.
        has_result: such a handler ran.
        text: the result as JSON, if it can be kept.
        error: why it could not be verified.
        reason: why it is unknown.
        fingerprint: of the content that took effect.
        messages: published by its handler in this unit.
    """

    phase: Phase
    claim: Claim | None = None
    result: Any = None
    has_result: bool = False
    text: str | None = None
    error: Exception | None = None
    reason: str = ""
    fingerprint: str | None = None
    messages: OfHandler | None = None

    @property
    def before(self) -> str:
        """Why it was in doubt when it was found; empty if no reason was recorded."""
        return self.reason or (self.claim.reason or "" if self.claim is not None else "")

    def known_result(self) -> Any:
        """Return the handler's result, from this unit or as stored."""
        if self.has_result:
            return self.result
        text = self.claim.result if self.claim is not None else None
        return json.loads(text) if text is not None else None


class Wanted(NamedTuple):
    """Claims wanted by one owner.

    Args:
        owner: its token.
        envelopes: the messages, by identity.
    """

    owner: str
    envelopes: Mapping[str, Envelope]


class _Asked(NamedTuple):
    """Claims wanted by one owner, by identity; written outside of the transaction that others wait for."""

    owner: str
    new: Mapping[str, NewClaim]


class ClaimBook:
    """Takes and releases claims, in transactions of its own; concurrent handlers share one transaction.

    Args:
        engine: the app's database.
        claims: of the consumer.
        lease: how long a claim lives without renewal.
        clock: where time comes from.
    """

    def __init__(self, engine: Engine, claims: Claims, lease: timedelta, clock: Clock) -> None:
        self._engine = engine
        self._claims = claims
        self._lease = lease
        self._clock = clock
        self._taking = Together(self._take_groups)
        self._finishing = Together(self._finish_groups)

    def take(self, envelopes: Iterable[Envelope], owner: str) -> dict[str, Held]:
        """Do so for one owner."""
        first: dict[str, Envelope] = {}
        for envelope in envelopes:
            first.setdefault(envelope.identity, envelope)
        return self.take_all([Wanted(owner, first)])[0]

    def take_all(self, wanted: Sequence[Wanted]) -> Sequence[dict[str, Held]]:
        """Claim free identities, take over abandoned ones for verification; returns for each owner the states by identity."""
        asked = [
            _Asked(
                owner,
                {
                    identity: NewClaim(identity, message.key, owner, to_text(message))
                    for identity, message in sorted(envelopes.items())
                },
            )
            for owner, envelopes in wanted
        ]
        if not any(each.new for each in asked):
            return [{} for _ in asked]  # an earlier strategy of the list has deferred all
        return self._taking.ask(asked)

    def _take_groups(self, groups: Sequence[Sequence[_Asked]]) -> list[list[dict[str, Held]]]:
        taken = iter(self._take([asked for group in groups for asked in group]))
        return [list(islice(taken, len(group))) for group in groups]

    def _take(self, many: Sequence[_Asked]) -> list[dict[str, Held]]:
        new: dict[str, NewClaim] = {}
        for wanted in many:
            new.update((identity, claim) for identity, claim in wanted.new.items() if identity not in new)

        def work(connection: Connection) -> list[dict[str, Held]]:
            until = self._clock.now() + self._lease
            taken = self._claims.take(connection, [new[identity] for identity in sorted(new)], until)
            owner_of = {identity: new[identity].owner for identity in taken}
            there = {
                identity
                for wanted in many
                for identity in wanted.new
                if owner_of.get(identity) != wanted.owner
            }
            found = self._claims.read(connection, there) if there else {}
            return [
                {
                    identity: Held(Phase.OURS)
                    if owner_of.get(identity) == wanted.owner
                    else self._found(connection, found.get(identity), wanted.owner)
                    for identity in wanted.new
                }
                for wanted in many
            ]

        return self._shared(work, len(many))

    def _found(self, connection: Connection, claim: Claim | None, owner: str) -> Held:
        now = self._clock.now()
        if claim is None:
            # Present at the insert, and gone now: released in between, which is as good as held.
            return Held(Phase.FOREIGN)
        if claim.state is State.DONE:
            return Held(Phase.DONE, claim, fingerprint=claim.fingerprint)
        if claim.holder == owner and claim.state is State.PROCESSING:
            return Held(Phase.OURS, claim)  # a commit whose answer was lost
        if claim.holder != owner and claim.live(now):
            return Held(Phase.FOREIGN, claim)
        if self._claims.take_over(connection, claim, owner, now + self._lease):
            return Held(Phase.DOUBTFUL, claim)
        return Held(Phase.FOREIGN, claim)

    def start(self, identities: Sequence[str], owner: str) -> Sequence[str]:  # noqa: ARG002
        """Return none: in the ledger a claim is in doubt from the beginning."""
        return ()

    def start_waits(self, owner: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def undone(self, identity: str, owner: str) -> bool:
        """Let the handler of a verified claim run; returns whether the claim was still ours."""
        until = self._clock.now() + self._lease
        return in_transaction(
            self._engine, lambda connection: self._claims.prove_undone(connection, identity, owner, until)
        )

    def finish_all(self, ends: Sequence[Finish]) -> Sequence[bool]:
        """Record that effects happened; returns for each whether the claim was ours.

        Their messages are stored in the same transaction, unless an earlier try whose answer was lost has stored them.
        """
        return self._finishing.ask([_end(each) for each in ends])

    def _finish_groups(self, groups: Sequence[Sequence[End]]) -> list[list[bool]]:
        ours = iter(self._finish([end for group in groups for end in group]))
        return [list(islice(ours, len(group))) for group in groups]

    def _finish(self, ends: Sequence[End]) -> list[bool]:
        now = self._clock.now()
        return self._shared(lambda connection: self._claims.finish(connection, ends, now), len(ends))

    def doubt(
        self,
        identity: str,
        owner: str,
        reason: str,
        *,
        ask_in: timedelta = timedelta(0),
        fingerprint: str | None = None,
    ) -> bool:
        """Record that the effect may have happened; returns whether the claim was ours."""
        ask_at = self._clock.now() + ask_in
        return in_transaction(
            self._engine,
            lambda connection: self._claims.doubt(
                connection, identity, owner, ask_at, reason=reason, fingerprint=fingerprint
            ),
        )

    def doubt_all(self, doubts: Sequence[Doubt]) -> None:
        """Record that several effects may have happened, in one transaction."""
        now = self._clock.now()

        def work(connection: Connection) -> None:
            for doubt in sorted(doubts, key=lambda each: each.identity):
                self._claims.doubt(
                    connection,
                    doubt.identity,
                    doubt.owner,
                    now,
                    reason=doubt.reason,
                    fingerprint=doubt.fingerprint,
                )

        in_transaction(self._engine, work)

    def drop_all(self, claims: Sequence[tuple[str, str]]) -> None:
        """Delete claims of several owners in one transaction: identity and owner of each."""

        def work(connection: Connection) -> None:
            for identity, owner in sorted(claims):
                self._claims.drop(connection, [identity], owner)

        in_transaction(self._engine, work)

    def drop(self, identities: Collection[str], owner: str) -> None:
        """Delete our claims whose handler certainly had no effect."""
        if identities:
            in_transaction(self._engine, lambda connection: self._claims.drop(connection, identities, owner))

    def drop_verified(self, identity: str, owner: str) -> None:
        """Delete a claim that we took over and that verification found undone."""
        in_transaction(
            self._engine,
            lambda connection: self._claims.drop(connection, [identity], owner, State.VERIFYING),
        )

    def take_over(self, claim: Claim, owner: str) -> bool:
        """Take over one abandoned claim for verification; returns whether it was unchanged."""
        until = self._clock.now() + self._lease
        return in_transaction(
            self._engine, lambda connection: self._claims.take_over(connection, claim, owner, until)
        )

    def stuck(self, *, after: str, limit: int, everything: bool) -> Sequence[Claim]:
        """Return abandoned claims, in order of identity."""
        now = self._clock.now()
        return in_transaction(
            self._engine,
            lambda connection: self._claims.stuck(
                connection, now, after=after, limit=limit, everything=everything
            ),
        )

    def find(self, identity: str) -> Claim | None:
        """Return the claim of an identity, if any."""
        found = in_transaction(self._engine, lambda connection: self._claims.read(connection, [identity]))
        return found.get(identity)

    def is_live(self, claim: Claim) -> bool:
        """Return whether an owner is processing the claim."""
        return claim.live(self._clock.now())

    def _shared(self, work: Callable[[Connection], Result], jobs: int) -> Result:
        """Run it once for several threads; a thread whose own job is blocked by a lock waits for that lock alone."""
        return in_transaction(self._engine, work, tries=TRIES if jobs == 1 else 1)


def _end(end: Finish) -> End:
    also = end.messages.store if end.messages is not None else None
    return End(end.identity, end.owner, end.result, end.fingerprint, also)
