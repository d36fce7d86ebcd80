"""Clock that the code reads, so that tests can substitute their own."""

import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks: wall time in UTC, and `time.monotonic`."""

    # Not methods of its own: the engine asks several times for each unit.
    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)
