"""One breaker of a consumer: closed, open for a time, half open until enough messages have come, closed again."""

import math
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from oncemq.engine.breakers.rule import BreakerAction, BreakerKind, BreakerRule
from oncemq.engine.breakers.windows import KeyWindow, Totals, Window

_LONGEST = timedelta(minutes=10)
"""No breaker stays open for longer before it tries again, unless its rule says so."""
_SLOWED = 4
"""A slowed consumer takes this part (1/4) of what it took before."""


class Phase(StrEnum):
    """Phase of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a breaker found.

    Args:
        share: of the messages in its window.
        messages: in its window.
        key: the most frequent one, for a breaker of hot keys; else empty.
    """

    share: float
    messages: int
    key: str = ""


class Breaker:
    """Judges one kind of share; not thread-safe.

    Args:
        rule: when it opens.
        now: monotonic seconds.

    Attributes:
        phase: where it is.
        found: its last judgement.
        rate: the most messages a second that its process may take; None = as many as there are.
        open_until: monotonic seconds at which it tries again; of the last time it opened.
    """

    def __init__(self, rule: BreakerRule, now: float) -> None:
        self.rule = rule
        self.phase = Phase.CLOSED
        self.found = Judgement(0.0, 0)
        self.rate: float | None = None
        self.open_until = now
        self._in_a_row = 0
        self._forget(now)

    def _forget(self, now: float) -> None:
        seconds = self.rule.window.total_seconds()
        self._window = Window(seconds, now)
        self._keys = KeyWindow(seconds, now)

    @property
    def trial(self) -> int:
        """The messages after which a half-open breaker decides: few, but enough for its share to mean something."""
        if self.rule.action is BreakerAction.WARN:
            return self.rule.minimum
        return min(
            self.rule.minimum, max(self.rule.minimum // 10, math.ceil(2 / max(self.rule.above, 0.001)))
        )

    def count(self, found: Totals, keys: list[str], now: float) -> None:
        """Count messages that came to an end since the last look."""
        self._window.add(found, now)
        if keys:
            self._keys.add(keys)

    def look(self, now: float) -> bool:
        """Return whether its phase has changed, or it has opened again."""
        self.found = self._judge(now)
        before = self.phase
        if before is Phase.OPEN:
            if now < self.open_until:
                return False
            self._forget(now)
            self.phase = Phase.HALF_OPEN
            self.rate = None if self.rule.action is BreakerAction.WARN else float(self.trial)
            return True
        enough = self.rule.minimum if before is Phase.CLOSED else self.trial
        if self.found.messages < enough:
            return False
        if self.found.share > self.rule.above:
            self._open(now)
            return True
        if before is Phase.CLOSED:
            return False
        self.phase, self.rate, self._in_a_row = Phase.CLOSED, None, 0
        return True

    def _open(self, now: float) -> None:
        longest = max(_LONGEST, self.rule.open_for)
        lasts = min(longest, self.rule.open_for * 2 ** min(self._in_a_row, 20))
        self._in_a_row += 1
        self.open_until = now + lasts.total_seconds()
        if self.rule.action is BreakerAction.SLOW:
            taken = self.found.messages / self._window.length(now)
            # The rate of a trial says nothing about the usual one.
            before = self._before if self.phase is Phase.HALF_OPEN else taken
            self._before = before
            self.rate = max(1.0, before / _SLOWED)
        else:
            self.rate = None
        self.phase = Phase.OPEN

    _before = 0.0

    def _judge(self, now: float) -> Judgement:
        if self.rule.kind is BreakerKind.HOT_KEY:
            key, count, messages = self._keys.first(now)
            return Judgement(count / messages if messages else 0.0, messages, key)
        whole = self._window.total(now)
        if not whole.messages:
            return Judgement(0.0, 0)
        part = whole.duplicates if self.rule.kind is BreakerKind.DUPLICATES else whole.failures
        return Judgement(part / whole.messages, whole.messages)
