"""Exit codes for each kind of failure, for scripts and process managers."""

from collections.abc import Sequence

from oncemq.errors import (
    BrokerError,
    ConfigError,
    InfrastructureError,
    LedgerError,
    MissingExtra,
    OnceMQError,
    UnknownName,
)

OK = 0
FAILED = 1
USAGE = 2
CONFIG = 3
BROKER = 4
DATABASE = 5
LEFT_OVER = 6
HARD_LIMIT = 70
INTERRUPTED = 130

MEANINGS: Sequence[tuple[int, str]] = (
    (OK, "done; `run`: drained, everything that was begun is settled"),
    (FAILED, "something failed; `run`: work was left unsettled and will be delivered again"),
    (USAGE, "the command line is wrong"),
    (CONFIG, "the configuration cannot run, or a needed package is not installed"),
    (BROKER, "a broker cannot be reached, refuses, or lacks what a consumer needs"),
    (DATABASE, "the database cannot be reached, or its OnceMQ tables are missing or of another version"),
    (
        LEFT_OVER,
        "`run --until-idle`: the deadline has come, or what is left makes no progress (parked, paused, not subscribed)",
    ),
    (
        HARD_LIMIT,
        "a handler exceeded its hard time limit: `App.run()`, or a worker of `run` while it drained; else `run` starts another",
    ),
    (INTERRUPTED, "stopped at once, by Ctrl-C or a second signal"),
)

FATAL = frozenset({USAGE, CONFIG})
"""A restart would not fix these."""

UNREACHABLE = frozenset({BROKER, DATABASE})
"""At the first start these need an operator; later they mean a temporary outage."""

FINISHED = frozenset({LEFT_OVER})
"""A worker that ends with these has finished, as with 0."""

_CODES: tuple[tuple[type[OnceMQError], int], ...] = (
    (ConfigError, CONFIG),
    (UnknownName, CONFIG),
    (MissingExtra, CONFIG),
    (BrokerError, BROKER),
    (InfrastructureError, DATABASE),
    (LedgerError, DATABASE),
)


def exit_code(error: OnceMQError) -> int:
    """Return the exit code for `error`."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
