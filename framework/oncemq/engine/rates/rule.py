"""Defines how many messages a second a consumer may take, as declared."""

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
