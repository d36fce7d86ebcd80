"""Layout of an id: time, worker and sequence in 41, 10 and 12 bits of a positive 64-bit integer."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SEQUENCE_BITS = 12
WORKER_BITS = 10
TIME_BITS = 41
PER_MILLISECOND = 1 << SEQUENCE_BITS
WORKERS = 1 << WORKER_BITS
TIME_SHIFT = SEQUENCE_BITS + WORKER_BITS
LAST_MILLISECOND = (1 << TIME_BITS) - 1
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
"""Epoch of the milliseconds; 41 bits last until September 2093."""

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of an id.

    Args:
        made_at: time, to the millisecond.
        worker: the worker number of the process that made it, 0 to 1,023.
        sequence: number within that millisecond, 0 to 4,095.
    """

    made_at: datetime
    worker: int
    sequence: int


def milliseconds(moment: datetime) -> int:
    """Return the whole milliseconds from the epoch to an aware moment."""
    return (moment - EPOCH) // _MILLISECOND


def moment_of(count: int) -> datetime:
    """Return the moment so many milliseconds after the epoch."""
    return EPOCH + count * _MILLISECOND


def take_apart(number: int) -> Parts:
    """Return the parts of an id.

    Raises:
        ValueError: it is not an id.
    """
    if not 0 <= number >> TIME_SHIFT <= LAST_MILLISECOND:
        raise ValueError(f"{number} is not a snowflake id: it must be positive and fit 63 bits")
    worker = (number >> SEQUENCE_BITS) & (WORKERS - 1)
    return Parts(moment_of(number >> TIME_SHIFT), worker, number & (PER_MILLISECOND - 1))
