"""Paces the purge: it rests nine tenths of its time, and less while too many rows come."""

from collections.abc import Callable
from typing import Final

from oncemq.common.clock import Clock

GENTLE: Final = 9.0
"""Rest so many times as long as a step took: a tenth of the time is work."""
_WINDOW: Final = 10.0
_ENOUGH: Final = 2
"""So many rows must go for one that comes: then what is too old is gone at the latest when as much time again has passed."""
_PLENTY: Final = 4
_SHORTEST: Final = 0.5

Came = Callable[[float, int], int]
"""Returns how many rows came in the last so many seconds; it need not count further than so many."""


class Pace:
    """The rest between two batches of a purge that goes on and on.

    Every ten seconds it looks how many rows came meanwhile. Unless twice as many went, the rest is halved, in the end to
    none; when four times as many went it is doubled again, up to `GENTLE`. So consumers come first, and yet what is
    old never piles up, however much they write.

    Args:
        clock: where time comes from.

    Attributes:
        rest: so many times as long as a step took.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rest = GENTLE
        self._began: float | None = None
        self._gone = 0

    def went(self, rows: int, came: Came) -> bool:
        """Note that a step deleted `rows`, and that there are more; returns whether it looked what came."""
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
        """Note that nothing old is left: the next time begins gently."""
        self.rest, self._began, self._gone = GENTLE, None, 0

    def _change(self, came: int) -> None:
        if self._gone < _ENOUGH * came:
            self.rest = self.rest / 2 if self.rest >= 2 * _SHORTEST else 0.0
        elif self._gone >= _PLENTY * came:
            self.rest = min(GENTLE, max(_SHORTEST, self.rest * 2))
