"""Decides the verdict for a message from the exception that its handler raised."""

from contextlib import suppress
from datetime import timedelta
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import TracebackType
from typing import Final

from oncemq.common.durations import delay_of
from oncemq.common.error_text import MAX_ERROR_TEXT, attribute, describe, text_of
from oncemq.contracts.verdict import Verdict, defer, reject, retry
from oncemq.errors import (
    BadItems,
    ClaimStoreUnavailable,
    HandlerFault,
    InfrastructureError,
    MessageRefused,
    Reject,
    Retry,
    StrategyBug,
)
from oncemq.retry.classify import Fault, classify

EXHAUSTED = "attempts-exhausted"
CRASHED = "crashed"
HARD_LIMIT = "hard-limit"
DIED = frozenset({CRASHED, HARD_LIMIT})
"""Reasons of dead letters on which processes ended."""

__all__ = [
    "INFRASTRUCTURE",
    "UnknownCulprit",
    "as_engine_error",
    "describe",
    "forget_error",
    "is_infrastructure",
    "judge",
]

_SUSPENDABLE: Final = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_MOST_CAUSES: Final = 100
_STORE_AWAY: Final = timedelta(seconds=2)
"""How long a handler waits that met an outage of the store of large bodies."""

INFRASTRUCTURE = frozenset({Fault.TRANSIENT, Fault.OFFLINE, Fault.CANCELLED, Fault.SETUP})
"""Faults that are not caused by a message (rule 7)."""


class UnknownCulprit(Exception):
    """The run must roll back, and it is unknown which item is at fault."""


def is_infrastructure(error: BaseException) -> bool:
    """Return whether the error is caused by the database, and not by a message."""
    return issubclass(type(error), InfrastructureError) or classify(error) in INFRASTRUCTURE


def as_engine_error(error: BaseException, doing: str) -> InfrastructureError | StrategyBug:
    """Return the error of the engine, caused by `error`, for a hook that failed in the step `doing`."""
    found: InfrastructureError | StrategyBug = (
        InfrastructureError(describe(error))
        if is_infrastructure(error)
        else StrategyBug(f"{doing} failed: {describe(error)}")
    )
    found.__cause__ = error
    return found


def judge(error: BaseException) -> Verdict:
    """Return the verdict on the item whose handler raised `error`; never raises.

    `raise Reject` and a payload that is not valid dead-letter it, `raise Retry` redelivers it, and any
    other exception follows the retry policy.
    """
    kind = type(error)  # not isinstance, which reads the object's `__class__`
    if issubclass(kind, Reject):
        return reject(text_of(error, MAX_ERROR_TEXT) or "rejected by the handler", error=error)
    if issubclass(kind, MessageRefused):
        code = attribute(error, "reason")
        return reject(text_of(error, MAX_ERROR_TEXT), error=error, code=code if type(code) is str else "")
    if issubclass(kind, Retry):
        try:
            after = attribute(error, "after")
            # Repeated for subclasses that set the attribute themselves.
            delay = None if after is None else delay_of(after)
        except (TypeError, ValueError) as wrong:
            return retry(describe(wrong), error=wrong)
        return retry(
            text_of(error, MAX_ERROR_TEXT) or "the handler asked for a retry", after=delay, error=error
        )
    if issubclass(kind, ClaimStoreUnavailable):
        # An outage, met while publishing: whenever it ends, the message is not at fault.
        return defer(_STORE_AWAY, describe(error))
    if issubclass(kind, BadItems):
        fault = HandlerFault(
            "BadItems names messages of a Batch, which this handler does not take: raise the error itself"
        )
        fault.__cause__ = error
        error = fault
    return retry(describe(error), error=error)


def cause_of(error: BaseException) -> BaseException:
    """Return the cause of an InfrastructureError."""
    return error.__cause__ or error


def fault_of(error: BaseException) -> Fault:
    """Return the fault behind an InfrastructureError."""
    return classify(cause_of(error))


def forget_error(verdict: Verdict) -> None:
    """Let a settled verdict go without its error, and the error without the local variables of its traceback.

    The frames of a traceback hold the unit, the message and often, in drivers, the error itself. Such a circle would stay in
    memory until Python's collector searches its old objects, after tens of thousands of messages. Never raises.
    """
    error, verdict.error = verdict.error, None
    left: list[object] = [error]
    seen: set[int] = set()
    while left and len(seen) < _MOST_CAUSES:
        found = left.pop()
        if id(found) in seen or not issubclass(type(found), BaseException):
            continue
        seen.add(id(found))
        _clear_frames(attribute(found, "__traceback__"))
        left += [attribute(found, "__cause__"), attribute(found, "__context__")]
        members = attribute(found, "exceptions") if issubclass(type(found), BaseExceptionGroup) else ()
        left += members if type(members) is tuple else ()


def _clear_frames(trace: object) -> None:
    while type(trace) is TracebackType:
        frame = trace.tb_frame
        # One that is suspended, such as the reader of a pool, may have passed its error on; clearing would end it.
        if not frame.f_code.co_flags & _SUSPENDABLE:
            with suppress(RuntimeError):  # it is still running
                frame.clear()
        trace = trace.tb_next
