"""Acts on breakers once a second: logs, pauses a consumer through the ledger, limits its rate here."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.engine.breakers.breaker import Breaker, Phase
from oncemq.engine.breakers.recorder import BreakerRecorder
from oncemq.engine.breakers.rule import BreakerAction, BreakerKind
from oncemq.engine.rates.rate_limit import RateLimit
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import BREAKER, Pause
from oncemq.observe.observers import Observers

_FOUND: Mapping[BreakerKind, str] = {
    BreakerKind.DUPLICATES: "were duplicates",
    BreakerKind.FAILURES: "failed",
    BreakerKind.HOT_KEY: "had the same key",
}


class Limited(Protocol):
    """A consumer whose rate can be limited."""

    def limit_rate(self, limit: RateLimit | None) -> None:
        """Take no more than this from now on; None = as much as there is."""
        ...


class BreakerControl:
    """Lets breakers act on the consumers of this process.

    Args:
        recorder: the breakers and their counts; None without any.
        engine: the app's database, through which all processes pause; None without one.
        clock: the source of time.
        scopes: ledger scopes by the consumers' names.
        crews: the consumers by name.
        observers: receive each change.
    """

    def __init__(
        self,
        recorder: BreakerRecorder | None,
        engine: Engine | None,
        clock: Clock,
        scopes: Mapping[str, str],
        crews: Mapping[str, Limited],
        observers: Observers,
    ) -> None:
        self._recorder = recorder
        self._engine = engine
        self._clock = clock
        self._scopes = scopes
        self._crews = crews
        self._observers = observers

    def look(self) -> bool:
        """Judge and act; returns whether a consumer was paused. Must not raise."""
        recorder, paused = self._recorder, False
        if recorder is None:
            return False
        for name, breaker in recorder.look():
            self._tell(name, breaker)
            rate = recorder.rate(name)
            self._crews[name].limit_rate(None if rate is None else RateLimit(rate, self._clock))
            if breaker.phase is Phase.OPEN and breaker.rule.action is BreakerAction.PAUSE:
                paused = self._pause(name, breaker) or paused
        return paused

    def _pause(self, name: str, breaker: Breaker) -> bool:
        if self._engine is None:
            return False
        rule, found, now = breaker.rule, breaker.found, self._clock.now()
        why = (
            f"{found.share:.0%} of {found.messages} messages {_FOUND[rule.kind]}, more than {rule.above:.0%}"
        )
        pause = Pause(self._scopes[name], BREAKER, rule.kind.value, why, now, now + self._left(breaker))
        try:
            with self._engine.begin() as connection:
                pauses.begin_or_lengthen(connection, pause)
        except Exception as error:
            self._observers.failed(f"pausing {name} in all processes", error)
            return False
        return True

    def _left(self, breaker: Breaker) -> timedelta:
        return timedelta(seconds=max(0.0, breaker.open_until - self._clock.monotonic()))

    def _tell(self, name: str, breaker: Breaker) -> None:
        rule, found = breaker.rule, breaker.found
        self._observers.breaker_changed(
            name,
            rule.kind.value,
            breaker.phase.value,
            action=rule.action.value,
            share=found.share,
            above=rule.above,
            messages=found.messages,
            key=found.key,
            next_in=self._left(breaker) if breaker.phase is Phase.OPEN else None,
        )
