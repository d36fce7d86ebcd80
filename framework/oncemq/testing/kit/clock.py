"""The time of an app under test."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar

from oncemq.common.clock import Clock
from oncemq.common.durations import parse_duration


class TestClock:
    """The app's time.

    Args:
        clock: the source of time.
        advance: lets time pass, and the app work meanwhile.
    """

    __test__: ClassVar[bool] = False

    def __init__(self, clock: Clock, advance: Callable[[timedelta], None]) -> None:
        self._clock = clock
        self._advance = advance

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return self._clock.now()

    def advance(self, by: timedelta | str) -> None:
        """Let time pass: retries, time-outs and background tasks that are due run, each at its time.

        With `real=True` this waits, at most for a minute.

        Args:
            by: such as "10m", or a timedelta.

        Raises:
            ValueError: it is no duration, or too long to wait for.
        """
        self._advance(parse_duration(by) if isinstance(by, str) else by)
