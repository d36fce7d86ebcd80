"""The option `start` of brokers that keep messages after they were read: the place in a log where a new group begins."""

from datetime import datetime
from typing import Final

from oncemq_adapters.options import OptionReader

FIRST: Final = "first"
LAST: Final = "last"


def read_start(reader: OptionReader) -> str | datetime:
    """Return the option `start`: `first` (default), `last` or a moment; anything else is a problem."""
    declared = reader.options.get("start", FIRST)
    if declared in (FIRST, LAST):
        return str(declared)
    try:
        moment = declared if isinstance(declared, datetime) else datetime.fromisoformat(declared)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        reader.complain(
            "start",
            f"{declared!r} is not a place to start at",
            "write first, last, or a time with its zone, like 2026-01-31T00:00:00Z",
        )
        return FIRST
    return moment
