"""Events that are worth a log line or a metric: the engine tells them here, once, and knows nothing of who listens."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from oncemq.contracts.verdict import Outcome
from oncemq.message.envelope import Delivery
from oncemq.observe.state import PauseReason


class RescueStep(StrEnum):
    """What the engine did to save the healthy part of a unit."""

    DROP = "drop"
    """An item was left out and its run went on."""
    SAVEPOINT = "savepoint"
    """A part of the unit was rolled back to its savepoint and run again."""
    RERUN = "rerun"
    """Rolled back and run again without the culprit."""
    CAREFUL = "careful"
    """Nobody knew the culprit: run again with a flush after every item."""
    HALVE = "halve"
    """Still nobody knew the culprit: the unit was split."""
    SOLO = "solo"
    """One item ran alone."""
    INFRASTRUCTURE = "infrastructure"
    """The same run again, because of the database; nobody was charged."""


class TimeLimit(StrEnum):
    """Which of a handler's time limits passed."""

    SOFT = "soft"
    HARD = "hard"


class Observer:
    """Somebody who is told; every method does nothing until it is overridden.

    Calls come from any thread, at most a few for each unit, and must return at once. `consumer` is always
    the consumer's name as configured, so that it may become a metric's label; what stems from a message
    stands in `delivery` and `error` only.
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
        """No unit runs until `retry_in` has passed, or until somebody mends it where that is None."""

    def consumer_resumed(self, consumer: str, *, after: timedelta) -> None:
        """Units run again, `after` so long a pause."""

    def unit_done(
        self,
        consumer: str,
        counts: Mapping[Outcome, int],
        *,
        size: int,
        seconds: float,
        rescue: Mapping[RescueStep, int] | None = None,
    ) -> None:
        """A unit has been settled: what its messages came to, how many it took, how long, with which rescues."""

    def infrastructure_failed(
        self, consumer: str, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """The database failed a run that is tried again in process; no message is charged."""

    def stale(self, consumer: str, delivery: Delivery, *, reason: str) -> None:
        """A message came too late: something newer had been applied."""

    def retried(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        next_in: timedelta,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """A message failed and comes again after `next_in`; `delivery.message.attempt` is the try that failed."""

    def dead_lettered(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        code: str,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """A message lies among the dead letters; `code` is the machine-readable reason."""

    def settle_failed(self, consumer: str, count: int, error: BaseException) -> None:
        """The broker did not take `count` settlements; `error` is the first one's."""

    def exclusive_units(self, consumer: str, *, on: bool, error: BaseException | None = None) -> None:
        """Units deadlocked with each other and run one at a time from now on, or run side by side again."""

    def crash_suspect(self, consumer: str, *, key: str, identity: str, crashes: int) -> None:
        """A process died while this message ran; it runs alone from now on."""

    def time_limit(
        self, consumer: str, delivery: Delivery | None, which: TimeLimit, limit: timedelta
    ) -> None:
        """A handler took longer than allowed; None where nobody knows with which message."""

    def connection_lost(self, broker: str, consumer: str) -> None:
        """The broker is gone; what was not settled is void and will come again."""

    def connection_resumed(self, broker: str, consumer: str, *, after: timedelta) -> None:
        """The broker sends messages to this consumer again."""

    def outbox_refused(
        self, topic: str, count: int, *, tries: int, next_in: timedelta, error: BaseException
    ) -> None:
        """A broker did not take so many messages that handlers published; they are kept and sent again."""

    def unroutable(
        self, topic: str, message_ids: Sequence[str], *, dropped: bool, error: BaseException
    ) -> None:
        """A broker has no place for messages that handlers published: dropped, else kept as the outbox's dead letters."""

    def still_runs(self, text: str) -> None:
        """A run that shall end when nothing is left says what it waits for, or what it leaves over."""

    def warned(self, text: str) -> None:
        """Something about the set-up is dangerous, but the app may run."""

    def failed(self, doing: str, error: BaseException) -> None:
        """A side job failed (`committed` of a strategy, upkeep, a cache); nothing is lost by it."""

    def draining(self, grace: timedelta) -> None:
        """No new messages are taken; what runs may finish within `grace`."""

    def drained(self, *, seconds: float, returned: int) -> None:
        """All that ran has been settled; `returned` messages went back to the broker unstarted."""

    def stopped(self, *, clean: bool) -> None:
        """The app has ended; not clean when something had to be cut off."""
