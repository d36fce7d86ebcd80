"""Keeps in the ledger the dead letters that the broker refuses, and what failed."""

from collections.abc import Callable, Sequence

from sqlalchemy import Engine

from oncemq.common.clock import Clock
from oncemq.common.error_text import describe
from oncemq.common.sharding import Layout
from oncemq.contracts.adapter import DeadLetterRequest, SettleFailed
from oncemq.engine.base.items import failed_row
from oncemq.errors import BrokerUnavailable
from oncemq.ledger.messages import dead_letters
from oncemq.ledger.records import history
from oncemq.ledger.records.history import HistoryRow
from oncemq.message.envelope import Delivery
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


def note_failures(
    scope: str,
    engines: Sequence[Engine],
    layout: Layout | None,
    clock: Clock,
    failures: Sequence[tuple[Delivery, str, str]],
    failed: Callable[[str, BaseException], None],
) -> None:
    """Write failed messages and their outcome into the history; each on the shard of its key.

    Args:
        scope: the consumer's.
        engines: the app's databases; none = nothing is written.
        layout: which of them a key belongs to; None = the only one.
        clock: the source of time.
        failures: each message with the code and the reason of its outcome.
        failed: called with an error, which changes nothing.
    """
    by_shard = dict[int, list[HistoryRow]]()
    if not engines:
        return
    now = clock.now()
    for delivery, code, reason in failures:
        shard = 0 if layout is None else layout.shard_of(delivery.key)
        by_shard.setdefault(shard, []).append(failed_row(scope, delivery, code, reason, now))
    for shard, rows in by_shard.items():
        try:
            with engines[shard].begin() as connection:
                history.add(connection, rows)
        except Exception as error:
            failed("writing the history of failures", error)
