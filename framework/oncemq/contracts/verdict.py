"""Verdicts on one message, and the exception by which a strategy names the items that must not commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The name of a verdict, as used in metrics, logs and the history."""

    # Enum's own __hash__ is Python code and hashes the member's name, which differs from its equal text.
    __hash__ = str.__hash__

    PROCEED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    EXPIRED = "expired"
    PARKED = "parked"
    DEFER = "deferred"
    WAIT = "waiting"
    RETRY = "retry"
    REJECT = "rejected"
    CONFLICT = "conflict"
    RETURNED = "returned"
    VOID = "void"


_FINAL = frozenset({Outcome.PROCEED, Outcome.DUPLICATE, Outcome.STALE, Outcome.EXPIRED})
_ACKNOWLEDGED = _FINAL | {Outcome.PARKED}
_HOLDS_KEY = frozenset({Outcome.DEFER, Outcome.RETRY, Outcome.RETURNED})


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a parked message.

    Args:
        number: its place in its key's order; None = any change of its key may be its turn.
        again: it is checked again after this time, unless woken before; None = never.
        limit: the most parked messages of one key, the broker keeps the rest; None = no limit.
        held: it waits for all earlier parked messages of its key.
    """

    number: int | None = None
    again: timedelta | None = None
    limit: int | None = 1000
    held: bool = False


class Verdict:
    """The decision about one message; compare `outcome`, or identity with `PROCEED`.

    Attributes:
        outcome: which verdict this is.
        acknowledged: the broker need not deliver the message again.
        final: the message is finished: it may leave traces (rule 8).
        holds_key: the key's later messages of this unit must wait for it.
        reason: a few words for people; becomes the dead letter's reason text.
        delay: for Retry, Defer and Wait; None leaves it to the retry policy.
        error: the cause, if it is an exception; None again once the message is settled.
        code: the dead letter's machine-readable reason (`rejected`, `conflict`, `undecodable` …).
        place: where a parked message waits; None for all others.
        untried: a strategy decided it before the handler could run.
        tier: of a duplicate, where it was found: `redis`, `database` or `unit`; empty if the strategy does not say.
    """

    __slots__ = (
        "acknowledged",
        "code",
        "delay",
        "error",
        "final",
        "holds_key",
        "outcome",
        "place",
        "reason",
        "tier",
        "untried",
    )

    def __init__(
        self,
        outcome: Outcome,
        reason: str = "",
        *,
        delay: timedelta | None = None,
        error: BaseException | None = None,
        code: str = "",
        place: Place | None = None,
        tier: str = "",
    ) -> None:
        self.outcome = outcome
        self.acknowledged = outcome in _ACKNOWLEDGED
        self.final = outcome in _FINAL
        self.holds_key = outcome in _HOLDS_KEY
        self.reason = reason
        self.delay = delay
        self.error = error
        self.code = code or outcome.value
        self.place = place
        self.untried = False
        self.tier = tier

    def __repr__(self) -> str:
        return f"<Verdict {self.outcome.value}{': ' + self.reason if self.reason else ''}>"


PROCEED = Verdict(Outcome.PROCEED)
"""Run the handler; after it ran: applied."""
DUPLICATE = Verdict(Outcome.DUPLICATE)
"""The same message was applied before."""
DUPLICATE_IN_REDIS = Verdict(Outcome.DUPLICATE, tier="redis")
"""The same, known to Redis: the database was not asked."""
DUPLICATE_IN_DATABASE = Verdict(Outcome.DUPLICATE, tier="database")
"""The same, known to the database."""
DUPLICATE_IN_UNIT = Verdict(Outcome.DUPLICATE, tier="unit")
"""The same, applied earlier in this transaction."""
PARKED = Verdict(Outcome.PARKED)
"""Kept durably until its turn comes; acknowledged, but not final."""
RETURNED = Verdict(Outcome.RETURNED)
"""Never started: returns to the head of its key's queue."""
VOID = Verdict(Outcome.VOID)
"""Not ours any more: another process has finished it, so nothing is left to do or to report."""


def stale(reason: str) -> Verdict:
    """Return: too late, a newer version has been applied; acknowledged and noted."""
    return Verdict(Outcome.STALE, reason)


def expired(reason: str) -> Verdict:
    """Return: too old, its time is over; acknowledged and noted."""
    return Verdict(Outcome.EXPIRED, reason)


def parked(reason: str, place: Place = Place()) -> Verdict:
    """Return: stored in the ledger until its turn comes; the broker's delivery is acknowledged.

    A strategy holds a lock on the key until the transaction ends, both when it parks a message and when it wakes one
    (`Run.wake`): otherwise a message could be parked just after its turn has come.
    """
    return Verdict(Outcome.PARKED, reason, place=place)


def defer(delay: timedelta, reason: str = "") -> Verdict:
    """Return: not now; retried in this process, without counting as an attempt."""
    return Verdict(Outcome.DEFER, reason, delay=delay)


def wait(delay: timedelta, reason: str = "") -> Verdict:
    """Return: the broker keeps it for this long, without counting as an attempt; later messages of its key continue.

    For a message that arrived before what it needs: nothing has failed, and the wait may be long.
    """
    return Verdict(Outcome.WAIT, reason, delay=delay)


def retry(reason: str, *, after: timedelta | None = None, error: BaseException | None = None) -> Verdict:
    """Return: redeliver, which counts as an attempt."""
    return Verdict(Outcome.RETRY, reason, delay=after, error=error)


def before_a_try(verdict: Verdict) -> Verdict:
    """Return a strategy's verdict on an item whose handler has not run, which the retry's copy must record."""
    if verdict.outcome is not Outcome.RETRY:
        return verdict
    noted = retry(verdict.reason, after=verdict.delay, error=verdict.error)
    noted.untried = True
    return noted


def reject(reason: str, *, error: BaseException | None = None, code: str = "") -> Verdict:
    """Return: dead-letter now."""
    return Verdict(Outcome.REJECT, reason, error=error, code=code)


def conflict(reason: str) -> Verdict:
    """Return: same identity, different content; dead-letter now, for a person to examine."""
    return Verdict(Outcome.CONFLICT, reason)


class Culprits(Exception):
    """Raised by a strategy's save or confirm: roll back; these items get these verdicts, the others run again."""

    def __init__(self, verdicts: Mapping[Any, Verdict]) -> None:
        super().__init__(", ".join(repr(verdict) for verdict in verdicts.values()))
        self.verdicts = dict(verdicts)
