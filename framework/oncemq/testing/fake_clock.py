"""Clock that only moves when a test advances it."""

from datetime import UTC, datetime, timedelta
from threading import Lock


class FakeClock:
    """Wall and monotonic time that do not move until `advance`; thread-safe to read."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._passed = timedelta(0)
        self._lock = Lock()

    def now(self) -> datetime:
        """Return the start plus everything advanced so far."""
        with self._lock:
            return self._start + self._passed

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        with self._lock:
            return self._passed.total_seconds()

    def advance(self, by: timedelta) -> None:
        """Let `by` pass at once."""
        if by < timedelta(0):
            raise ValueError(f"time cannot go back by {-by}")
        with self._lock:
            self._passed += by
