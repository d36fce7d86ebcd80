"""Classifies errors of a Redis client: Redis is away, it must be asked elsewhere, or it said no."""

import ssl
from typing import Any

from oncemq.errors import RedisRefused, RedisUnavailable

Failure = RedisUnavailable | RedisRefused

# By name: two generations of clients have classes of their own for the same answer.
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
"""OpenSSL's codes for certificates that nobody whom we trust vouches for."""
_PACKAGES = frozenset({"redis", "rediscluster"})


def is_answer(error: BaseException) -> bool:
    """Return whether the server itself said this, so that its connection is in order."""
    return "ResponseError" in _names(error) and "ConnectionError" not in _names(error)


def is_no_master(error: object) -> bool:
    """Return whether the server is no master that answers now, so that nothing was done: its name may mean another."""
    if not isinstance(error, BaseException) or not is_answer(error):
        return False
    text = str(error)
    return bool(_names(error) & _NO_MASTER) or text.startswith(_NO_MASTER_WORDS) or "-READONLY " in text


def is_clients(error: BaseException) -> bool:
    """Return whether the error is a client library's or the network's."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _PACKAGES


def asks(error: object) -> str | None:
    """Return the place of an ASK answer, to which the command goes this once."""
    return _place_in(error) if type(error).__name__ == "AskError" else None


def moved(error: object) -> bool:
    """Return whether the slot lives elsewhere, so that the command was not run."""
    return type(error).__name__ == "MovedError"


def moved_to(error: object) -> str | None:
    """Return the place that a MOVED answer names; None for other answers, or where it names only a port."""
    return _place_in(error) if moved(error) else None


def _place_in(error: Any) -> str | None:
    host = getattr(error, "host", None)
    return f"{host}:{error.port}" if host else None


def not_yet(error: object) -> bool:
    """Return whether the slot is on the move and the call's keys are on two servers, so that it was not run."""
    return type(error).__name__ == "TryAgainError"


def script_missing(error: object) -> bool:
    """Return whether the server does not know the script, so that it was not run."""
    return type(error).__name__ == "NoScriptError"


def as_ours(error: BaseException, where: str, *, sent: bool) -> Failure:
    """Return what a client's error is to us.

    Args:
        error: of either generation of clients, or the system's.
        where: which server, for the text.
        sent: the command may have reached the server, so it may have been applied.
    """
    names, text = _names(error), " ".join(str(error).split())[:300]
    if is_answer(error) and not names & _BUSY and not text.startswith(_BUSY_WORDS):
        return RedisRefused(f"{where} refused: {text}")
    untrusted = _untrusted(error)
    if untrusted is not None:
        return RedisRefused(f"{where} did not prove by TLS who it is: {untrusted}")
    if is_answer(error):
        return RedisUnavailable(f"{where} cannot do it now: {text}")
    return RedisUnavailable(f"{where} does not answer: {type(error).__name__}: {text}", sent=sent)


def _untrusted(error: BaseException) -> str | None:
    """Return why the server's certificate was not accepted, and what to do, if that is what happened."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    advice = "; write ca: with the file of its authority" if cause.verify_code in _UNKNOWN_AUTHORITY else ""
    return f"certificate verify failed: {cause.verify_message}{advice}"


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
