"""Report on one key of a sequence: its number, missing numbers, waiting messages."""

from collections.abc import Mapping

from sqlalchemy import Connection

from oncemq.ledger.messages import parking
from oncemq.ledger.records import sequences

_MOST = 20
"""Number of ranges that are named; the rest is counted."""


def report(connection: Connection, consumer: str, key: str, first: int | None) -> Mapping[str, str]:
    """Return texts by name; empty if nothing is known about the key.

    Args:
        connection: of the database.
        consumer: the ledger scope.
        key: the business key.
        first: the first number of a key; None = any.
    """
    last = sequences.last_of(connection, consumer, key)
    waiting = parking.numbers(connection, consumer, key)
    if last is None and not waiting:
        return {}
    following = last + 1 if last is not None else first
    found = {
        "last number": str(last) if last is not None else "none yet",
        "next number": str(following) if following is not None else "any",
        "waiting": ranges(waiting) or "nothing",
    }
    if waiting and following is not None:
        found["missing"] = ranges(_between(following, waiting)) or "nothing"
    return found


def ranges(spans: list[tuple[int, int]]) -> str:
    """Return `4–6, 9` for spans of numbers, both ends included."""
    named = [str(low) if low == high else f"{low}–{high}" for low, high in spans[:_MOST]]
    more = [f"and {len(spans) - _MOST} more"] if len(spans) > _MOST else []
    return ", ".join([*named, *more])


def _between(following: int, waiting: list[tuple[int, int]]) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    for low, high in waiting:
        if low > following:
            gaps.append((following, low - 1))
        following = max(following, high + 1)
    return gaps
