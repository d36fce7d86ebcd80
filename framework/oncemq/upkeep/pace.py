"""Paces the purge: it rests nine tenths of its time, and less while too many rows arrive."""

from collections.abc import Callable
from typing import Final

from oncemq.common.clock import Clock

GENTLE: Final = 9.0
"""Rest as a multiple of a step's time: a tenth of the time is work."""
_WINDOW: Final = 10.0
_ENOUGH: Final = 2
"""Rows to delete per new row: then expired rows are gone at the latest after as much time again."""
_PLENTY: Final = 4
_SHORTEST: Final = 0.5

Came = Callable[[float, int], int]
"""Returns the number of rows added in the given seconds; it need not count beyond the given limit."""


class Pace:
    """The rest between two batches of a continuous purge.

    Every ten seconds it counts the rows added meanwhile. Unless twice as many were deleted, the rest is halved, in the end
    to none; when four times as many were deleted it is doubled again, up to `GENTLE`. So consumers come first, and yet
    expired rows never pile up, however much they write.

    Args:
        clock: the time source.

    Attributes:
        rest: as a multiple of a step's time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rest = GENTLE
        self._began: float | None = None
        self._gone = 0

    def went(self, rows: int, came: Came) -> bool:
        """Note that a step deleted `rows`, and that there are more; returns whether it counted the added rows."""
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now
        self._gone += rows
        if now - self._began < _WINDOW:
            return False
        self._change(came(now - self._began, self._gone))
        self._began, self._gone = now, 0
        return True

    def done(self) -> None:
        """Note that nothing expired is left: the next purge begins gently."""
        self.rest, self._began, self._gone = GENTLE, None, 0

    def _change(self, came: int) -> None:
        if self._gone < _ENOUGH * came:
            self.rest = self.rest / 2 if self.rest >= 2 * _SHORTEST else 0.0
        elif self._gone >= _PLENTY * came:
            self.rest = min(GENTLE, max(_SHORTEST, self.rest * 2))
