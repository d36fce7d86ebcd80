"""What an exception means for the message whose handler raised it."""

from oncemq.errors import InfrastructureError, MessageRefused, Reject, Retry
from oncemq.message.headers import MAX_ERROR_TEXT
from oncemq.retry.classify import Fault, classify
from oncemq.retry.unique import UniqueViolation
from oncemq.verdict import Verdict, reject, retry

INFRASTRUCTURE = frozenset({Fault.TRANSIENT, Fault.OFFLINE, Fault.CANCELLED, Fault.SETUP})
"""Faults that no message causes (rule 7)."""


class UnknownCulprit(Exception):
    """The run must roll back, and nobody can say which item is at fault."""


def is_infrastructure(error: BaseException) -> bool:
    """Return whether the error is the database's trouble, and no message's fault."""
    return isinstance(error, InfrastructureError) or classify(error) in INFRASTRUCTURE


def judge(error: BaseException) -> Verdict:
    """Return the verdict on the item whose handler raised `error`.

    `raise Reject` and a payload that is not valid dead-letter it, `raise Retry` redelivers it, and any
    other exception follows the retry policy.
    """
    if isinstance(error, Reject):
        return reject(str(error) or "rejected by the handler", error=error)
    if isinstance(error, MessageRefused):
        return reject(str(error), error=error, code=error.reason)
    if isinstance(error, Retry):
        return retry(str(error) or "the handler asked for a retry", after=error.after, error=error)
    return retry(describe(error), error=error)


def describe(error: BaseException) -> str:
    """Return class and text of an error, short enough to travel in a header."""
    typed = isinstance(error, UniqueViolation)
    text = str(error if typed else getattr(error, "orig", None) or error)
    return f"{type(error).__name__}: {text}"[:MAX_ERROR_TEXT] if text else type(error).__name__
