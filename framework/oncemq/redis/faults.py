"""What an error of a Redis client means: Redis is away, it must be asked elsewhere, or it said no."""

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
_PACKAGES = frozenset({"redis", "rediscluster"})


def is_answer(error: BaseException) -> bool:
    """Return whether the server itself said this, so that its connection is in order."""
    return "ResponseError" in _names(error) and "ConnectionError" not in _names(error)


def is_clients(error: BaseException) -> bool:
    """Return whether the error is a client library's or the network's."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _PACKAGES


def asks(error: object) -> str | None:
    """Return the place of an ASK answer, to which the command goes this once."""
    if type(error).__name__ != "AskError":
        return None
    found: Any = error
    return f"{found.host}:{found.port}"


def moved(error: object) -> bool:
    """Return whether the slot lives elsewhere, so that the command was not run."""
    return type(error).__name__ == "MovedError"


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
    if is_answer(error):
        return RedisUnavailable(f"{where} cannot do it now: {text}")
    return RedisUnavailable(f"{where} does not answer: {type(error).__name__}: {text}", sent=sent)


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
