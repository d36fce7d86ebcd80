"""The claims of one unit: which are ours, which are others', and which nobody knows the end of."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from sqlalchemy import Connection, Engine

from oncemq.clock import Clock
from oncemq.ledger.claims import Claim, Claims, State
from oncemq.message.envelope import Envelope
from oncemq.message.stored import to_text
from oncemq_strategies.own_transaction import in_transaction


class Phase(Enum):
    """How far a unit has come with one identity."""

    OURS = auto()
    """Claimed; its handler has not been called."""
    STARTED = auto()
    """Its handler was called, and how that ended has not been written down."""
    DOUBTFUL = auto()
    """Ours to verify."""
    FOREIGN = auto()
    """Somebody else is at it."""
    DONE = auto()
    UNKNOWN = auto()
    UNANSWERED = auto()
    GONE = auto()
    """Written down and given up in this unit; another copy begins anew."""


@dataclass(slots=True)
class Held:
    """One identity in one unit.

    Args:
        phase: how far it is.
        claim: as it was found in the ledger; None for a new one.
        result: of a handler that ran in this unit.
        has_result: it did.
        error: why it could not be verified.
        reason: why it is unknown.
        fingerprint: of the content that is done.
    """

    phase: Phase
    claim: Claim | None = None
    result: Any = None
    has_result: bool = False
    error: Exception | None = None
    reason: str = ""
    fingerprint: str | None = None

    @property
    def before(self) -> str:
        """Why it was in doubt when it was found; empty if nobody said."""
        return self.reason or (self.claim.reason or "" if self.claim is not None else "")

    def known_result(self) -> Any:
        """Return what the handler returned, in this unit or as it is kept."""
        if self.has_result:
            return self.result
        text = self.claim.result if self.claim is not None else None
        return json.loads(text) if text is not None else None


class ClaimBook:
    """Takes and gives back claims, each time in a transaction of its own.

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

    def take(self, envelopes: Iterable[Envelope], owner: str) -> dict[str, Held]:
        """Claim what is free, and begin to verify what nobody is at; returns what was found, by identity."""
        first: dict[str, Envelope] = {}
        for envelope in envelopes:
            first.setdefault(envelope.identity, envelope)
        new = [(one, first[one].key, to_text(first[one])) for one in sorted(first)]
        if not new:
            return {}  # an earlier strategy of the list has put off the whole unit

        def work(connection: Connection) -> dict[str, Held]:
            now = self._clock.now()
            mine = self._claims.take(connection, new, owner, now + self._lease)
            there = [identity for identity in sorted(first) if identity not in mine]
            found = self._claims.read(connection, there) if there else {}
            held = {identity: Held(Phase.OURS) for identity in mine}
            for identity in there:
                # One that was there for the insert and is not now was given up in between: as good as held.
                claim = found.get(identity)
                held[identity] = (
                    Held(Phase.FOREIGN) if claim is None else self._found(connection, claim, owner)
                )
            return held

        return in_transaction(self._engine, work)

    def _found(self, connection: Connection, claim: Claim, owner: str) -> Held:
        now = self._clock.now()
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
        """Return none: in the ledger a claim is in doubt from its beginning."""
        return ()

    def undone(self, identity: str, owner: str) -> bool:
        """Let the handler of a verified claim run; returns whether it was still ours."""
        until = self._clock.now() + self._lease
        return in_transaction(
            self._engine, lambda connection: self._claims.prove_undone(connection, identity, owner, until)
        )

    def finish(
        self, identity: str, owner: str, *, result: str | None = None, fingerprint: str | None = None
    ) -> bool:
        """Write down that the effect has happened; returns whether the claim was ours."""
        now = self._clock.now()
        return in_transaction(
            self._engine,
            lambda connection: self._claims.finish(
                connection, identity, owner, now, result=result, fingerprint=fingerprint
            ),
        )

    def doubt(
        self,
        identity: str,
        owner: str,
        reason: str,
        *,
        ask_in: timedelta = timedelta(0),
        fingerprint: str | None = None,
    ) -> bool:
        """Write down that the effect may have happened; returns whether the claim was ours."""
        ask_at = self._clock.now() + ask_in
        return in_transaction(
            self._engine,
            lambda connection: self._claims.doubt(
                connection, identity, owner, ask_at, reason=reason, fingerprint=fingerprint
            ),
        )

    def drop(self, identities: Collection[str], owner: str) -> None:
        """Delete claims of ours whose handler surely had no effect."""
        if identities:
            in_transaction(self._engine, lambda connection: self._claims.drop(connection, identities, owner))

    def drop_verified(self, identity: str, owner: str) -> None:
        """Delete a claim that we took over and that has proved undone."""
        in_transaction(
            self._engine,
            lambda connection: self._claims.drop(connection, [identity], owner, State.VERIFYING),
        )

    def take_over(self, claim: Claim, owner: str) -> bool:
        """Begin to verify one claim that nobody is at; returns whether it was as seen."""
        until = self._clock.now() + self._lease
        return in_transaction(
            self._engine, lambda connection: self._claims.take_over(connection, claim, owner, until)
        )

    def stuck(self, *, after: str, limit: int, everything: bool) -> Sequence[Claim]:
        """Return claims that nobody is at, in order of identity."""
        now = self._clock.now()
        return in_transaction(
            self._engine,
            lambda connection: self._claims.stuck(
                connection, now, after=after, limit=limit, everything=everything
            ),
        )

    def find(self, identity: str) -> Claim | None:
        """Return one claim, if there is one."""
        found = in_transaction(self._engine, lambda connection: self._claims.read(connection, [identity]))
        return found.get(identity)

    def is_live(self, claim: Claim) -> bool:
        """Return whether somebody is at work on it."""
        return claim.live(self._clock.now())
