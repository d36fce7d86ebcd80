"""Classifies errors of a Redis client: Redis unavailable, another server to ask, or refused."""

import ssl
from typing import Any

from oncemq.errors import RedisRefused, RedisUnavailable

Failure = RedisUnavailable | RedisRefused

# By name: two generations of clients have different classes for the same answer.
_BUSY = frozenset(
    {
        *("BusyLoadingError", "TryAgainError", "ClusterDownError", "MasterDownError", "ReadOnlyError"),
        *("OutOfMemoryError", "ClusterError", "MovedError", "AskError", "NoScriptError"),
    }
)
_BUSY_WORDS = (
    *("LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "OOM", "BUSY", "NOREPLICAS"),
    "MISCONF",
)
_NO_MASTER = frozenset({"BusyLoadingError", "ClusterDownError", "MasterDownError", "ReadOnlyError"})
_NO_MASTER_WORDS = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN")
_UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for certificates that no trusted authority has signed."""
_PACKAGES = frozenset({"redis", "rediscluster"})


def is_answer(error: BaseException) -> bool:
    """Return whether the error is the server's answer, so the connection is intact."""
    names = _names(error)
    # Both generations of clients count LOADING as a lost connection, but the server has said that it ran nothing.
    return "BusyLoadingError" in names or ("ResponseError" in names and "ConnectionError" not in names)


def is_no_master(error: object) -> bool:
    """Return whether the server is no available master, so nothing was done: its name may resolve to another."""
    if not isinstance(error, BaseException) or not is_answer(error):
        return False
    text = str(error)
    return bool(_names(error) & _NO_MASTER) or text.startswith(_NO_MASTER_WORDS) or "-READONLY " in text


def is_clients(error: BaseException) -> bool:
    """Return whether the error comes from a client library or the network."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _PACKAGES


def asks(error: object) -> str | None:
    """Return the place of an ASK answer; the command goes there this once."""
    return _place_in(error) if type(error).__name__ == "AskError" else None


def moved(error: object) -> bool:
    """Return whether the slot is on another server, so the command was not run."""
    return type(error).__name__ == "MovedError"


def moved_to(error: object) -> str | None:
    """Return the place in a MOVED answer; None for other answers, or if it names only a port."""
    return _place_in(error) if moved(error) else None


def _place_in(error: Any) -> str | None:
    host = getattr(error, "host", None)
    return f"{host}:{error.port}" if host else None


def not_yet(error: object) -> bool:
    """Return whether the slot is migrating and the call's keys are on two servers, so it was not run."""
    return type(error).__name__ == "TryAgainError"


def script_missing(error: object) -> bool:
    """Return whether the server does not know the script, so it was not run."""
    return type(error).__name__ == "NoScriptError"


def as_ours(error: BaseException, where: str, *, sent: bool) -> Failure:
    """Return our failure for a client's error.

    Args:
        error: of either client generation, or the operating system's.
        where: the server, for the text.
        sent: the command may have reached the server and been applied.
    """
    names, text = _names(error), " ".join(str(error).split())[:300]
    if is_answer(error) and not names & _BUSY and not text.startswith(_BUSY_WORDS):
        return RedisRefused(f"{where} refused: {text}")
    untrusted = _untrusted(error)
    if untrusted is not None:
        return RedisRefused(f"{where} failed the verification of its TLS certificate: {untrusted}")
    if is_answer(error):
        return RedisUnavailable(f"{where} cannot do it now: {text}")
    return RedisUnavailable(f"{where} does not answer: {type(error).__name__}: {text}", sent=sent)


def _untrusted(error: BaseException) -> str | None:
    """Return why the server's certificate was rejected, and what to do; None for other errors."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    advice = "; write ca: with the file of its authority" if cause.verify_code in _UNKNOWN_AUTHORITY else ""
    return f"certificate verify failed: {cause.verify_message}{advice}"


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
