"""What the oracle knows when all is over: what was sent, what it did, where else it ended, what is left behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Fate(StrEnum):
    """What became of a message in the end."""

    APPLIED = "applied"
    DEAD = "dead-lettered"
    STALE = "stale"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Sent:
    """One business message, however often it was sent.

    Args:
        key: the business entity.
        kind: what its handler does; decides which fates it may have.
        step: its place in the key's life, where that has one.
        attempted: how many sends were begun.
        confirmed: how many of them the broker has confirmed.
    """

    key: str
    kind: str = "plain"
    step: int = 0
    attempted: int = 1
    confirmed: int = 1


@dataclass(frozen=True, slots=True)
class Effect:
    """One row in the effect ledger, which has no unique constraint."""

    number: int
    identity: str
    key: str
    attempt: int
    process: int


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter as it lies in the broker."""

    identity: str
    reason: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Note:
    """One row of the framework's history: not applied, and why."""

    identity: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A process received a message, or began its handler; written to a plain file, so no roll-back removes it.

    Args:
        process: which.
        identity: the message's.
        attempt: of the message.
        moved: it came from the group's retries.
    """

    process: int
    identity: str
    attempt: int
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: how often it was asked for, how often it is known to have happened."""

    name: str
    asked: int
    fired: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the judge looks at.

    Args:
        sent: by identity.
        effects: in the ledger's order.
        letters: of the group.
        notes: of the consumer.
        arrivals: in the order in which processes received.
        tried: in the order in which handlers began.
        remains: what should be gone, in words.
        faults: what was done to the system.
    """

    sent: Mapping[str, Sent]
    effects: Sequence[Effect] = ()
    letters: Sequence[Letter] = ()
    notes: Sequence[Note] = ()
    arrivals: Sequence[Seen] = ()
    tried: Sequence[Seen] = ()
    remains: Sequence[str] = ()
    faults: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """What the app under attack has promised.

    Args:
        fates: which fates each kind of message may have; unlisted kinds must be applied.
        attempts: tries of a message before it is a dead letter.
        reruns: how often a handler may begin besides its attempts, for each message: units that are run again.
        copies: dead letters in excess of what was sent that the faults explain (a death between a confirmed copy
            and the original's acknowledgement), for each message; each copy has its own attempts.
        rising: the steps of a key must rise from effect to effect, no matter who applied them.
        retries_lose_place: but not those of messages that were retried, or that a member which left moved to the retries.
        ordered: in one process, effects of a key come in the order of arrival, until one was retried.
        held: they do also after a retry, and whichever process applied them.
    """

    fates: Mapping[str, frozenset[Fate]] = field(default_factory=dict)
    attempts: int = 6
    reruns: int = 50
    copies: int = 0
    rising: bool = False
    retries_lose_place: bool = False
    ordered: bool = True
    held: bool = False
