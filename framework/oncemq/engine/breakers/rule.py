"""Rule of one breaker of a consumer."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class BreakerKind(StrEnum):
    """What a breaker counts, as a share of the messages of its window."""

    DUPLICATES = "duplicates"
    """Messages that had been applied before."""
    FAILURES = "failures"
    """Messages that failed: retried, rejected or unreadable."""
    HOT_KEY = "hot_key"
    """Messages of the most frequent key."""


class BreakerAction(StrEnum):
    """What an open breaker does."""

    WARN = "warn"
    """It logs, and shows itself in metrics and health."""
    SLOW = "slow"
    """Its process takes a quarter as many messages a second as before."""
    PAUSE = "pause"
    """The consumer is paused in all processes."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a breaker opens, and what it does then.

    Args:
        kind: what it counts.
        above: it opens when the share is larger; from 0 to 1.
        window: how far back it looks.
        minimum: with fewer messages in the window it does not judge.
        action: what it does while it is open.
        open_for: how long it stays open the first time; each time in a row twice as long.
    """

    kind: BreakerKind
    above: float
    window: timedelta = timedelta(minutes=1)
    minimum: int = 100
    action: BreakerAction = BreakerAction.WARN
    open_for: timedelta = timedelta(seconds=30)
