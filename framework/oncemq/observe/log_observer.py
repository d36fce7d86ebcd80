"""Logs each event as one line; none for a message that was applied, and the counts of all outcomes at the end."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import structlog

from oncemq.common.clock import Clock, SystemClock
from oncemq.common.durations import format_duration
from oncemq.common.error_text import is_a
from oncemq.contracts.verdict import Outcome
from oncemq.errors import OnceMQError
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer, TimeLimit
from oncemq.observe.fields import delivery_fields, error_place, error_text
from oncemq.observe.state import PauseReason

_PAUSED: Mapping[PauseReason, str] = {
    PauseReason.DATABASE: "consumer paused: the database does not answer",
    PauseReason.REDIS: "consumer paused: Redis does not answer",
    PauseReason.BROKER: "consumer paused: the broker does not answer",
    PauseReason.STRATEGY_BUG: "consumer paused: a strategy failed where it may not",
    PauseReason.SETUP: "consumer paused: a table, column or permission is missing",
    PauseReason.ASKED: "consumer paused by an operator",
    PauseReason.BREAKER: "consumer paused by a breaker",
    PauseReason.STORE: "consumer paused: the store of large bodies does not answer",
}


_SUMMARY = (Outcome.PROCEED, Outcome.DUPLICATE, Outcome.STALE, Outcome.PARKED)

TRACEBACK_PAUSE = 60.0
"""Seconds for which a repeated error of the same class and place is logged without its traceback."""
REPEAT_PAUSE = 60.0
"""Seconds for which an equal event of the background is counted and not logged."""
_MOST_PLACES = 1_000
_NAMED = 10


def _in(duration: timedelta) -> str:
    return f"next in {spaced(duration)}"


def spaced(duration: timedelta) -> str:
    """Return a duration as text: `8.1 s`."""
    text = format_duration(duration)
    number = text.rstrip("smhd")
    return f"{number} {text[len(number) :]}"


def _cause(error: BaseException | None) -> dict[str, Any]:
    if error is None:
        return {}
    place = error_place(error)
    return {"error": error_text(error)} | ({"at": place} if place else {})


def _exc_info(error: BaseException | None) -> dict[str, Any]:
    """Return the field of the traceback; none for an error that loggers cannot ask for it: the line would be lost."""
    return {"exc_info": error} if error is not None and _can_be_shown(error) else {}


def _can_be_shown(error: BaseException) -> bool:
    try:
        _ = error.__class__, error.__traceback__
    except BaseException:  # a property may raise anything
        return False
    return True


class Repeats:
    """Decides which of many equal events is logged: the first, then one a minute.

    Args:
        clock: the time source.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[object, ...], tuple[float, float, int]] = {}

    def times(self, event: tuple[object, ...]) -> int:
        """Return how often it has happened since its last line, now included; 0 if it is not to be logged.

        After two minutes without it, it counts as new.
        """
        now = self._clock.monotonic()
        with self._lock:
            if len(self._seen) >= _MOST_PLACES:
                self._seen.clear()
            logged, last, count = self._seen.get(event, (0.0, -2 * REPEAT_PAUSE, 0))
            if now - last >= 2 * REPEAT_PAUSE:
                self._seen[event] = now, now, 0
                return 1
            if now - logged < REPEAT_PAUSE:
                self._seen[event] = logged, now, count + 1
                return 0
            self._seen[event] = now, now, 0
            return count + 1

    def ended(self, event: tuple[object, ...]) -> None:
        """Make its next occurrence new."""
        with self._lock:
            self._seen.pop(event, None)


class LogObserver(Observer):
    """Writes events to structlog.

    Args:
        logger: a logger with structlog's interface; its logger `oncemq` if None.
        clock: the time source.
    """

    def __init__(self, logger: Any = None, clock: Clock | None = None) -> None:
        self._log = structlog.get_logger("oncemq") if logger is None else logger
        self._clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._traced: dict[tuple[str, type, str | None], tuple[float, int]] = {}
        self._repeats = Repeats(self._clock)

    def consumer_started(self, consumer: str, topic: str, *, workers: int) -> None:
        """One line."""
        self._log.info("consumer started", consumer=consumer, topic=topic, workers=workers)

    def consumer_paused(
        self,
        consumer: str,
        reason: PauseReason,
        *,
        retry_in: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        """One line, and one a minute while it lasts; with the traceback if code has to be fixed."""
        times = self._repeats.times(("paused", consumer, reason))
        if times == 0:
            return
        by_itself = "when it is resumed" if reason is PauseReason.ASKED else "when it is restarted"
        fields = {"consumer": consumer, "next": by_itself if retry_in is None else _in(retry_in)}
        if times > 1:
            self._log.warning(_PAUSED[reason], **fields, **_cause(error), times=times)
            return
        if reason is PauseReason.STRATEGY_BUG:
            self._log.error(_PAUSED[reason], **fields, **_cause(error), **_exc_info(error))
        else:
            self._log.warning(_PAUSED[reason], **fields, **_cause(error))

    def consumer_resumed(self, consumer: str, *, after: timedelta) -> None:
        """One line."""
        for reason in PauseReason:
            self._repeats.ended(("paused", consumer, reason))
        self._log.info("consumer resumed", consumer=consumer, after=spaced(after))

    def breaker_changed(
        self,
        consumer: str,
        breaker: str,
        phase: str,
        *,
        action: str,
        share: float,
        above: float,
        messages: int,
        key: str = "",
        next_in: timedelta | None = None,
    ) -> None:
        """One line."""
        fields: dict[str, Any] = {"consumer": consumer, "breaker": breaker}
        if phase == "open":
            fields |= {"share": round(share, 3), "above": above, "messages": messages, "action": action}
            fields |= ({"key": key} if key else {}) | ({"next": _in(next_in)} if next_in else {})
            self._log.warning("breaker opened", **fields)
        else:
            self._log.info("breaker is half open" if phase == "half-open" else "breaker closed", **fields)

    def unit_done(self, consumer: str, counts: Mapping[Outcome, int], **_: Any) -> None:  # noqa: ARG002
        """Count, for the line at the end."""
        with self._lock:
            for outcome in _SUMMARY:
                if count := counts.get(outcome):
                    self._counts[outcome.value] += count

    def infrastructure_failed(
        self, consumer: str, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """One line, and one a minute, from the second failure in a row: a single failure is normal."""
        if tries == 1:
            self._repeats.ended(("infrastructure", consumer))
        elif self._repeats.times(("infrastructure", consumer)):
            self._log.warning(
                "database failed, transaction is retried",
                consumer=consumer,
                tries=tries,
                next=_in(next_in),
                **_cause(error),
            )

    def stale(self, consumer: str, delivery: Delivery, *, reason: str) -> None:
        """One line."""
        self._log.info("message is stale", **delivery_fields(consumer, delivery), reason=reason)

    def expired(self, consumer: str, delivery: Delivery, *, reason: str) -> None:
        """One line."""
        self._log.warning("message expired", **delivery_fields(consumer, delivery), reason=reason)

    def retried(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        next_in: timedelta,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """One line; with the traceback the first time in a minute for each kind and place, then with a count."""
        self._count("retried")
        why = _why(reason, error)
        self._log.warning(
            "message failed, will be retried",
            **delivery_fields(consumer, delivery),
            next=_in(next_in),
            **why,
            **self._traceback(consumer, error, why.get("at")),
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
        """One line; with the traceback for the handler's own error, once a minute for each kind and place."""
        self._count("dead letters")
        why = _why(reason, error)
        self._log.error(
            "message dead-lettered",
            **delivery_fields(consumer, delivery),
            code=code,
            **why,
            **self._traceback(consumer, error, why.get("at")),
        )

    def key_held(self, consumer: str, delivery: Delivery, *, most: int | None = None) -> None:
        """One line, which names the key of a refused message, too."""
        about = {"consumer": consumer, "topic": delivery.message.topic, "key": delivery.known_key}
        if most is None:
            self._log.error(
                "key held: its later messages wait until the dead letter is replayed or purged", **about
            )
        else:
            self._log.error(
                "held key is full: its later messages are dead letters, too, until the first is replayed or purged",
                **about,
                waiting=most,
            )

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _traceback(self, consumer: str, error: BaseException | None, place: str | None) -> dict[str, Any]:
        """Return the traceback field, or how often this error was seen since its last traceback, in whatever message."""
        if error is None or is_a(error, OnceMQError):
            return {}
        what = (consumer, type(error), place)
        now = self._clock.monotonic()
        since, times = self._traced.get(what, (-TRACEBACK_PAUSE, 0))
        if now - since < TRACEBACK_PAUSE:
            self._traced[what] = since, times + 1
            return {"same_error": times + 1}
        if len(self._traced) >= _MOST_PLACES:
            self._traced.clear()
        self._traced[what] = now, 1
        return _exc_info(error)

    def settle_failed(self, consumer: str, count: int, error: BaseException) -> None:
        """One line."""
        self._log.warning(
            "settlement failed, messages are redelivered",
            consumer=consumer,
            count=count,
            **_cause(error),
        )

    def exclusive_units(self, consumer: str, *, on: bool, error: BaseException | None = None) -> None:
        """One line."""
        self._log.log(
            30 if on else 20,
            "units deadlocked, run one at a time" if on else "units run concurrently again",
            consumer=consumer,
            **_cause(error),
        )

    def crash_suspect(self, consumer: str, *, key: str, identity: str, crashes: int) -> None:
        """One line."""
        self._log.warning(
            "worker process died while this message ran, isolated from now on",
            consumer=consumer,
            key=key,
            identity=identity,
            crashes=crashes,
        )

    def time_limit(
        self, consumer: str, delivery: Delivery | None, which: TimeLimit, limit: timedelta
    ) -> None:
        """One line."""
        about = {"consumer": consumer} if delivery is None else delivery_fields(consumer, delivery)
        self._log.error(
            "handler exceeded its hard time limit, process ends"
            if which is TimeLimit.HARD
            else "handler exceeded its soft time limit",
            **about,
            limit=spaced(limit),
        )

    def connection_lost(self, broker: str, consumer: str) -> None:
        """One line."""
        self._log.warning("broker connection lost, reconnecting", broker=broker, consumer=consumer)

    def connection_resumed(self, broker: str, consumer: str, *, after: timedelta) -> None:
        """One line."""
        self._log.info("broker connection resumed", broker=broker, consumer=consumer, after=spaced(after))

    def outbox_refused(
        self, topic: str, count: int, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """One line for all that failed together."""
        self._log.warning(
            "published messages refused by their broker, kept in the outbox",
            topic=topic,
            messages=count,
            tries=tries,
            next=_in(next_in),
            **_cause(error),
        )

    def unroutable(
        self, topic: str, message_ids: Sequence[str], *, dropped: bool, error: BaseException
    ) -> None:
        """One line for all that failed together."""
        names = ", ".join(message_ids[:_NAMED]) + (", …" if len(message_ids) > _NAMED else "")
        self._log.error(
            "unroutable messages dropped" if dropped else "unroutable messages dead-lettered in the outbox",
            topic=topic,
            messages=len(message_ids),
            ids=names,
            **_cause(error),
        )

    def still_runs(self, text: str) -> None:
        """One line."""
        self._log.info(f"until idle: {text}")

    def warned(self, text: str) -> None:
        """One line."""
        self._log.warning(text)

    def failed(self, doing: str, error: BaseException) -> None:
        """One line with the traceback, as it is reported nowhere else; then one a minute with the number of failures."""
        cause = _cause(error)
        times = self._repeats.times((doing, type(error)))
        if times > 1:
            self._log.error(f"{doing} failed, nothing is lost", **cause, times=times)
        elif times:
            # In an outage many things fail by one cause: its traceback is the same for all.
            new = self._repeats.times(("cause", type(error), cause.get("at"))) == 1
            self._log.error(f"{doing} failed, nothing is lost", **cause, **(_exc_info(error) if new else {}))

    def draining(self, grace: timedelta) -> None:
        """One line."""
        self._log.info("draining, no new messages are accepted", grace=spaced(grace))

    def drained(self, *, seconds: float, returned: int) -> None:
        """One line."""
        self._log.info("drained", after=spaced(timedelta(seconds=seconds)), returned=returned)

    def stopped(self, *, clean: bool) -> None:
        """One line, with what became of the messages of this process, and how long it ran."""
        counts = self._counts
        self._log.log(
            20 if clean else 30,
            "stopped" if clean else "stopped, something was cut off",
            applied=counts["applied"],
            duplicates=counts["duplicate"],
            stale=counts["stale"],
            retried=counts["retried"],
            parked=counts["parked"],
            dead_letters=counts["dead letters"],
            after=spaced(timedelta(seconds=round(self._clock.monotonic() - self._started, 1))),
        )


def _why(reason: str, error: BaseException | None) -> dict[str, Any]:
    cause = _cause(error)
    return cause if not reason or reason == cause.get("error") else {"reason": reason, **cause}
