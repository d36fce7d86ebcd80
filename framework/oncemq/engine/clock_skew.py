"""Warns when the machine's clock differs from the database's clock, and measures the difference."""

from datetime import timedelta
from typing import Final

from sqlalchemy import Engine

from oncemq.common.durations import format_duration
from oncemq.engine.plan import AppPlan
from oncemq.ledger.database.connect import place
from oncemq.ledger.database.server_clock import REFUSE_FROM, WARN_FROM, LedgerClock
from oncemq.observe.observers import Observers

_AGAIN: Final = 3600.0
"""Seconds after which a clock that is still wrong causes another warning."""


class ClockWatch:
    """Reports the measurements of the app's clock.

    Args:
        plan: the app.
        observers: receive the warnings.
    """

    def __init__(self, plan: AppPlan, observers: Observers) -> None:
        self._clock = plan.clock if isinstance(plan.clock, LedgerClock) else None
        self._observers = observers
        self._told: dict[Engine, tuple[bool, float]] = {}

    def measure(self, engine: Engine) -> None:
        """Measure a database's clock now, before any write."""
        if self._clock is not None:
            self._clock.measure(engine)
            self.look()

    def look(self) -> None:
        """Warn about the last measurements, and again each hour or when it has become worse."""
        if self._clock is None:
            return
        now = self._clock.monotonic()
        for engine, skew in self._clock.skews.items():
            if abs(skew) < WARN_FROM:
                self._told.pop(engine, None)
                continue
            refused = self._clock.untrusted(engine)
            was_refused, told_at = self._told.get(engine, (False, -_AGAIN))
            if now - told_at >= _AGAIN or (refused and not was_refused):
                self._told[engine] = (refused, now)
                self._observers.warned(_words(engine, skew, refused=refused))

    def skew(self) -> float | None:
        """Return the largest difference in seconds, positive if this machine is ahead; None without a database."""
        skews = list(self._clock.skews.values()) if self._clock is not None else []
        return max(skews, key=abs).total_seconds() if skews else None


def _words(engine: Engine, skew: timedelta, *, refused: bool) -> str:
    which = "ahead of" if skew > timedelta(0) else "behind"
    whole = timedelta(seconds=round(abs(skew).total_seconds()))
    text = f"this machine's clock is {format_duration(whole)} {which} that of {place(engine)}: let NTP set it"
    if refused:
        text += f"; from {format_duration(REFUSE_FROM)} on this process purges nothing and takes nothing over there"
    return text
