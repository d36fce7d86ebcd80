"""Defines how many messages a consumer may take a second, work on at once, and hand over in a batch, as declared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateRule:
    """A consumer's limit.

    Args:
        limit: messages a second, more than 0.
        burst: the most messages that may be taken at once after a pause; None = those of a fifth of a second.
        shared: all processes of the app together take so many, by a count in Redis; else each process.
        text: as declared, for people.
    """

    limit: float
    burst: int | None = None
    shared: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ConcurrencyRule:
    """How many messages with the same value a process works on at once.

    Args:
        by: the expression of the value.
        limit: at least 1.
    """

    by: str
    limit: int


@dataclass(frozen=True, slots=True)
class BatchRule:
    """When waiting messages are enough for a batch, and which of them share one.

    Args:
        within: the seconds that a message waits for others at most; 0 = it waits for none.
        by: the expression of the value that all messages of a batch have; empty = any.
    """

    within: float = 0.0
    by: str = ""
