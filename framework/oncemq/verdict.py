"""What can be decided about one message, and how a strategy names the items that must not commit."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The name of a verdict, as it stands in metrics, logs and the history."""

    PROCEED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    PARKED = "parked"
    DEFER = "deferred"
    RETRY = "retry"
    REJECT = "rejected"
    CONFLICT = "conflict"
    RETURNED = "returned"


_FINAL = frozenset({Outcome.PROCEED, Outcome.DUPLICATE, Outcome.STALE})
_HOLDS_KEY = frozenset({Outcome.DEFER, Outcome.RETRY, Outcome.RETURNED})


class Verdict:
    """What shall happen to one message; compare `outcome`, or identity with `PROCEED`.

    Attributes:
        outcome: which verdict this is.
        final: nothing more will happen to this message: it may leave traces (rule 8).
        holds_key: the key's later messages of this unit must wait for it.
        reason: a few words for people; becomes the dead letter's reason text.
        delay: for Retry and Defer; None lets the retry policy decide.
        error: the exception behind it, if there is one.
        code: the dead letter's machine-readable reason (`rejected`, `conflict`, `undecodable` …).
    """

    __slots__ = ("code", "delay", "error", "final", "holds_key", "outcome", "reason")

    def __init__(
        self,
        outcome: Outcome,
        reason: str = "",
        *,
        delay: timedelta | None = None,
        error: BaseException | None = None,
        code: str = "",
    ) -> None:
        self.outcome = outcome
        self.final = outcome in _FINAL
        self.holds_key = outcome in _HOLDS_KEY
        self.reason = reason
        self.delay = delay
        self.error = error
        self.code = code or outcome.value

    def __repr__(self) -> str:
        return f"<Verdict {self.outcome.value}{': ' + self.reason if self.reason else ''}>"


PROCEED = Verdict(Outcome.PROCEED)
"""Run the handler; after it ran: applied."""
DUPLICATE = Verdict(Outcome.DUPLICATE)
"""The same message was applied before."""
PARKED = Verdict(Outcome.PARKED)
"""Kept durably until its turn comes; acknowledged, but not final."""
RETURNED = Verdict(Outcome.RETURNED)
"""Never started: back to the head of its key's queue."""


def stale(reason: str) -> Verdict:
    """Return: too late, something newer has been applied; acknowledged and noted."""
    return Verdict(Outcome.STALE, reason)


def defer(delay: timedelta, reason: str = "") -> Verdict:
    """Return: not now; tried again in this process, at no attempt's cost."""
    return Verdict(Outcome.DEFER, reason, delay=delay)


def retry(reason: str, *, after: timedelta | None = None, error: BaseException | None = None) -> Verdict:
    """Return: redeliver, which costs one attempt."""
    return Verdict(Outcome.RETRY, reason, delay=after, error=error)


def reject(reason: str, *, error: BaseException | None = None, code: str = "") -> Verdict:
    """Return: dead-letter now."""
    return Verdict(Outcome.REJECT, reason, error=error, code=code)


def conflict(reason: str) -> Verdict:
    """Return: same identity, different content; dead-letter now, a person must look."""
    return Verdict(Outcome.CONFLICT, reason)


class Culprits(Exception):
    """Raised by a strategy's save or confirm: roll back; these items get these verdicts, the others run again."""

    def __init__(self, verdicts: Mapping[Any, Verdict]) -> None:
        super().__init__(", ".join(repr(verdict) for verdict in verdicts.values()))
        self.verdicts = dict(verdicts)
