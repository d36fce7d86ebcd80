"""Events worth a log line or a metric: the engine reports each here once, independent of the observers."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.message.envelope import Delivery
from oncemq.observe.state import PauseReason


class RescueStep(StrEnum):
    """Step of the engine to save the healthy part of a unit."""

    DROP = "drop"
    """An item was left out and its run went on."""
    SAVEPOINT = "savepoint"
    """A part of the unit was rolled back to its savepoint and run again."""
    RERUN = "rerun"
    """Rolled back and run again without the culprit."""
    CAREFUL = "careful"
    """The culprit was unknown: run again with a flush after every item."""
    HALVE = "halve"
    """The culprit was still unknown: the unit was split."""
    SOLO = "solo"
    """One item ran alone."""
    INFRASTRUCTURE = "infrastructure"
    """The same run again, because of the database; no message was charged."""


class TimeLimit(StrEnum):
    """Time limit of a handler that passed."""

    SOFT = "soft"
    HARD = "hard"


class Observer:
    """Receives events; every method does nothing unless overridden.

    Calls come from any thread, at most a few per unit, and must return at once. `consumer` is always
    the consumer's name as configured, so that it may become a metric's label; data from a message
    is in `delivery` and `error` only.
    """

    def consumer_started(self, consumer: str, topic: str, *, workers: int) -> None:
        """The broker has confirmed the subscription."""

    def consumer_paused(
        self,
        consumer: str,
        reason: PauseReason,
        *,
        retry_in: timedelta | None = None,
        error: BaseException | None = None,
    ) -> None:
        """No unit runs until `retry_in` has passed, or until an operator has fixed the cause if it is None."""

    def consumer_resumed(self, consumer: str, *, after: timedelta) -> None:
        """Units run again after a pause of `after`."""

    def unit_done(
        self,
        consumer: str,
        counts: Mapping[Outcome, int],
        *,
        size: int,
        seconds: float,
        rescue: Mapping[RescueStep, int] | None = None,
    ) -> None:
        """A unit has been settled: counts of its outcomes, its size, its time, its rescue steps."""

    def judged(self, consumer: str, verdicts: Sequence[tuple[Delivery, Verdict]]) -> None:
        """Each message of a unit has its verdict, and is about to be settled; retries and dead letters are reported again."""

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
        """A breaker has opened (again), is half open, or is closed; `key` is the most frequent one of a `hot_key` breaker."""

    def infrastructure_failed(
        self, consumer: str, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """The database failed a run that is retried in process; no message is charged."""

    def stale(self, consumer: str, delivery: Delivery, *, reason: str) -> None:
        """A message came too late: a newer one had been applied."""

    def expired(self, consumer: str, delivery: Delivery, *, reason: str) -> None:
        """A message was too old to run."""

    def answered(self, consumer: str, what: str, count: int) -> None:
        """Requests were answered by their `result` or their `failure`, or answers `dropped`, for which there was no way."""

    def retried(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        next_in: timedelta,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """A message failed and is redelivered after `next_in`; `delivery.message.attempt` is the failed attempt."""

    def dead_lettered(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        code: str,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """A message became a dead letter; `code` is the machine-readable reason."""

    def key_held(self, consumer: str, delivery: Delivery, *, most: int | None = None) -> None:
        """A dead letter holds its key; with `most` because as many messages of the key wait for another one already."""

    def settle_failed(self, consumer: str, count: int, error: BaseException) -> None:
        """The broker did not accept `count` settlements; `error` is the first error."""

    def exclusive_units(self, consumer: str, *, on: bool, error: BaseException | None = None) -> None:
        """Units deadlocked with each other and run one at a time from now on, or run side by side again."""

    def crash_suspect(self, consumer: str, *, key: str, identity: str, crashes: int) -> None:
        """A process died while this message ran; it runs alone from now on."""

    def time_limit(
        self, consumer: str, delivery: Delivery | None, which: TimeLimit, limit: timedelta
    ) -> None:
        """A handler exceeded a time limit; `delivery` is None where the message is unknown."""

    def connection_lost(self, broker: str, consumer: str) -> None:
        """The connection to the broker is lost; unsettled deliveries are void and will be redelivered."""

    def connection_resumed(self, broker: str, consumer: str, *, after: timedelta) -> None:
        """The broker sends messages to this consumer again."""

    def outbox_refused(
        self, topic: str, count: int, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """A broker refused messages that handlers published; they are kept and retried."""

    def unroutable(
        self, topic: str, message_ids: Sequence[str], *, dropped: bool, error: BaseException
    ) -> None:
        """A broker cannot route messages that handlers published: dropped, or kept as the outbox's dead letters."""

    def still_runs(self, text: str) -> None:
        """A run that ends when nothing is left reports the work that it waits for, or leaves over."""

    def warned(self, text: str) -> None:
        """The configuration is risky, but the app may run."""

    def failed(self, doing: str, error: BaseException) -> None:
        """A side job failed (`committed` of a strategy, upkeep, a cache); no data is lost."""

    def draining(self, grace: timedelta) -> None:
        """No new messages are accepted; running ones may finish within `grace`."""

    def drained(self, *, seconds: float, returned: int) -> None:
        """All running messages have been settled; `returned` messages went back to the broker unstarted."""

    def stopped(self, *, clean: bool) -> None:
        """The app has ended; not clean when work had to be cut off."""
