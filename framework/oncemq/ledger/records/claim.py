"""What the ledger knows of an effect outside the database."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Connection


class State(StrEnum):
    """How far a claim has come."""

    PROCESSING = "processing"
    """Its owner's handler is about to run, or running."""
    VERIFYING = "verifying"
    """An earlier owner's handler may have run; this owner is finding out."""
    UNKNOWN = "unknown"
    """A handler may have run, and nobody is at it."""
    DONE = "done"


HELD = (State.PROCESSING, State.VERIFYING)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the ledger knows of one identity.

    Args:
        identity: of the message.
        key: of the message.
        state: how far it has come.
        holder: the owner token of whoever holds it, or did last.
        until: when the lease ends, or an unknown one is asked about again; None when done.
        fingerprint: of the content, where it is compared.
        result: what the handler returned, as JSON.
        reason: why it is unknown.
        envelope: the message, from `oncemq.message.stored`; None when done.
    """

    identity: str
    key: str
    state: State
    holder: str
    until: datetime | None
    fingerprint: str | None
    result: str | None
    reason: str | None
    envelope: str | None

    def live(self, now: datetime) -> bool:
        """Return whether somebody is at work on it, as far as its lease tells."""
        return self.state in HELD and self.until is not None and self.until > now


class NewClaim(NamedTuple):
    """What somebody would like to be at work on.

    Args:
        identity: of the message.
        key: of the message.
        owner: the token.
        envelope: the message, from `oncemq.message.stored`.
    """

    identity: str
    key: str
    owner: str
    envelope: str


class End(NamedTuple):
    """An effect that has happened.

    Args:
        identity: of the message.
        owner: the token.
        result: what the handler returned, as JSON.
        fingerprint: of the content, where it is compared.
        also: called in the transaction if the claim is ours and was not noted as done before.
    """

    identity: str
    owner: str
    result: str | None = None
    fingerprint: str | None = None
    also: Callable[[Connection], object] | None = None
