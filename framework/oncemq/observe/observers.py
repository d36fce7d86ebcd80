"""Passes events to several observers, none of which can disturb the engine or the others."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer, RescueStep, TimeLimit
from oncemq.observe.state import PauseReason


class Observers(Observer):
    """Passes every call on; an observer that raises is logged once and still called."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._failed: set[type[Observer]] = set()

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                call(observer)
            except Exception as error:
                self._note(type(observer), error)

    def _note(self, kind: type[Observer], error: Exception) -> None:
        if kind in self._failed:
            return
        self._failed.add(kind)
        logging.getLogger(__name__).error(
            "observer %s failed; messages are not affected, further failures of it are not logged",
            kind.__name__,
            exc_info=error,
        )

    def consumer_started(self, consumer: str, topic: str, *, workers: int) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.consumer_started(consumer, topic, workers=workers))

    def consumer_paused(
        self,
        consumer: str,
        reason: PauseReason,
        *,
        retry_in: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.consumer_paused(consumer, reason, retry_in=retry_in, error=error)
        )

    def consumer_resumed(self, consumer: str, *, after: timedelta) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.consumer_resumed(consumer, after=after))

    def unit_done(
        self,
        consumer: str,
        counts: Mapping[Outcome, int],
        *,
        size: int,
        seconds: float,
        rescue: Mapping[RescueStep, int] | None = None,
    ) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.unit_done(consumer, counts, size=size, seconds=seconds, rescue=rescue)
        )

    def infrastructure_failed(
        self, consumer: str, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.infrastructure_failed(
                consumer, tries=tries, next_in=next_in, error=error
            )
        )

    def stale(self, consumer: str, delivery: Delivery, *, reason: str) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.stale(consumer, delivery, reason=reason))

    def retried(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        next_in: timedelta,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.retried(consumer, delivery, next_in=next_in, reason=reason, error=error)
        )

    def dead_lettered(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        code: str,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.dead_lettered(consumer, delivery, code=code, reason=reason, error=error)
        )

    def settle_failed(self, consumer: str, count: int, error: BaseException) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.settle_failed(consumer, count, error))

    def exclusive_units(self, consumer: str, *, on: bool, error: BaseException | None = None) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.exclusive_units(consumer, on=on, error=error))

    def crash_suspect(self, consumer: str, *, key: str, identity: str, crashes: int) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.crash_suspect(consumer, key=key, identity=identity, crashes=crashes)
        )

    def time_limit(
        self, consumer: str, delivery: Delivery | None, which: TimeLimit, limit: timedelta
    ) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.time_limit(consumer, delivery, which, limit))

    def connection_lost(self, broker: str, consumer: str) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.connection_lost(broker, consumer))

    def connection_resumed(self, broker: str, consumer: str, *, after: timedelta) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.connection_resumed(broker, consumer, after=after))

    def outbox_refused(
        self, topic: str, count: int, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """Pass it on."""
        self._tell(
            lambda observer: observer.outbox_refused(topic, count, tries=tries, next_in=next_in, error=error)
        )

    def unroutable(
        self, topic: str, message_ids: Sequence[str], *, dropped: bool, error: BaseException
    ) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.unroutable(topic, message_ids, dropped=dropped, error=error))

    def still_runs(self, text: str) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.still_runs(text))

    def warned(self, text: str) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.warned(text))

    def failed(self, doing: str, error: BaseException) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.failed(doing, error))

    def draining(self, grace: timedelta) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.draining(grace))

    def drained(self, *, seconds: float, returned: int) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.drained(seconds=seconds, returned=returned))

    def stopped(self, *, clean: bool) -> None:
        """Pass it on."""
        self._tell(lambda observer: observer.stopped(clean=clean))
