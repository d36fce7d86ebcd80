"""Counts for breakers what the workers of this process bring to an end."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from oncemq.common.clock import Clock
from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.engine.breakers.breaker import Breaker
from oncemq.engine.breakers.rule import BreakerKind, BreakerRule
from oncemq.engine.breakers.windows import Totals
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer
from oncemq.observe.state import BreakerState

_FAILED = (Outcome.RETRY, Outcome.REJECT, Outcome.CONFLICT)
_UNDECIDED = (Outcome.RETURNED, Outcome.DEFER, Outcome.WAIT, Outcome.VOID)
_MOST_KEYS = 100_000
"""Keys that are kept between two looks; of more messages than that, the later ones are not counted by key."""


class _Counts:
    """What came to an end at one consumer since the last look."""

    def __init__(self, *, keys: bool) -> None:
        self.lock = threading.Lock()
        self.totals = Totals()
        self.keys: list[str] | None = [] if keys else None

    def take(self) -> tuple[Totals, list[str]]:
        with self.lock:
            totals, self.totals = self.totals, Totals()
            keys = self.keys or []
            if self.keys is not None:
                self.keys = []
        return totals, keys


class BreakerRecorder(Observer):
    """All breakers of a process, and their counts.

    Args:
        rules: by the consumer's name; those without a rule may be missing.
        clock: the source of time.
    """

    def __init__(self, rules: Mapping[str, Sequence[BreakerRule]], clock: Clock) -> None:
        now = clock.monotonic()
        self._clock = clock
        self._breakers = {
            name: tuple(Breaker(rule, now) for rule in mine) for name, mine in rules.items() if mine
        }
        self._counts = {
            name: _Counts(keys=any(each.rule.kind is BreakerKind.HOT_KEY for each in mine))
            for name, mine in self._breakers.items()
        }

    def unit_done(self, consumer: str, counts: Mapping[Outcome, int], *, size: int, **_: Any) -> None:
        """Count its outcomes."""
        found = self._counts.get(consumer)
        if found is None:
            return
        with found.lock:
            totals = found.totals
            if len(counts) == 1 and Outcome.PROCEED in counts:
                totals.messages += size
                return
            totals.messages += size - sum(counts.get(each, 0) for each in _UNDECIDED)
            totals.duplicates += counts.get(Outcome.DUPLICATE, 0)
            totals.failures += sum(counts.get(each, 0) for each in _FAILED)

    def judged(self, consumer: str, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Count its keys, where a breaker looks at them."""
        found = self._counts.get(consumer)
        if found is None or found.keys is None or len(found.keys) >= _MOST_KEYS:
            return
        keys = [delivery.key for delivery, verdict in verdicts if verdict.outcome not in _UNDECIDED]
        with found.lock:
            found.keys += keys

    def dead_lettered(self, consumer: str, delivery: Delivery, **_: Any) -> None:
        """Count a message that no unit has seen: it could not be read."""
        found = self._counts.get(consumer)
        if found is None or delivery.refusal is None:
            return
        with found.lock:
            found.totals.messages += 1
            found.totals.failures += 1

    def look(self) -> list[tuple[str, Breaker]]:
        """Judge; returns the breakers whose phase has changed, with their consumers."""
        now, changed = self._clock.monotonic(), []
        for name, mine in self._breakers.items():
            totals, keys = self._counts[name].take()
            for breaker in mine:
                breaker.count(totals, keys if breaker.rule.kind is BreakerKind.HOT_KEY else [], now)
                if breaker.look(now):
                    changed.append((name, breaker))
        return changed

    def rate(self, consumer: str) -> float | None:
        """Return the most messages a second that a consumer may take here; None = as many as there are."""
        rates = [each.rate for each in self._breakers.get(consumer, ()) if each.rate is not None]
        return min(rates, default=None)

    def states(self, consumer: str) -> tuple[BreakerState, ...]:
        """Return what metrics and health show of a consumer's breakers."""
        return tuple(
            BreakerState(each.rule.kind.value, each.phase.value, round(each.found.share, 4))
            for each in self._breakers.get(consumer, ())
        )
