"""Keeps in the ledger the dead letters that the broker refuses."""

from collections.abc import Callable, Sequence

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.common.error_text import describe
from oncemq.contracts.adapter import DeadLetterRequest, SettleFailed
from oncemq.errors import BrokerUnavailable
from oncemq.ledger.messages import dead_letters
from oncemq.retry.classify import Fault, classify

Drop = Callable[[Sequence[DeadLetterRequest]], Sequence[SettleFailed]]

_PASSES = frozenset({Fault.TRANSIENT, Fault.OFFLINE, Fault.CANCELLED})


class KeptLetters:
    """Stores what the broker refuses, then settles it at its source.

    Args:
        consumer: the ledger scope.
        engine: the app's database.
        clock: the source of time.
        drop: settles deliveries that are kept here.
    """

    def __init__(self, consumer: str, engine: Engine, clock: Clock, drop: Drop) -> None:
        self._consumer = consumer
        self._engine = engine
        self._clock = clock
        self._drop = drop

    def keep(self, dead: Sequence[DeadLetterRequest]) -> Sequence[SettleFailed]:
        """Store each separately, then settle those that are stored; returns the failures."""
        failed: list[SettleFailed] = []
        kept: list[DeadLetterRequest] = []
        for each in dead:
            error = self._store(each)
            if error is None:
                kept.append(each)
            else:
                failed.append(SettleFailed(each.delivery, error))
        return [*failed, *(self._drop(kept) if kept else ())]

    def _store(self, dead: DeadLetterRequest) -> Exception | None:
        message = dead.delivery.message
        try:
            with self._engine.begin() as connection:
                dead_letters.add(connection, self._consumer, message, dead.headers, self._clock.now())
        except Exception as error:
            if classify(error) not in _PASSES:
                return error
            # As for an unavailable broker: it is retried.
            away = BrokerUnavailable(f"the dead letter cannot be stored in the ledger: {describe(error)}")
            away.__cause__ = error
            return away
        return None
