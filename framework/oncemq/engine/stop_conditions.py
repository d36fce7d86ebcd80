"""Decides when a run with `until_idle` ends, and reports what it is waiting for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappop, heappush
from threading import Lock

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.message.envelope import Delivery
from oncemq.observe.events import Observer
from oncemq.observe.state import ConsumerState

EXIT_LEFT_OVER = 6
"""Ended in order, but something remains that makes no progress by itself, or the deadline has passed."""

_SAY_EVERY = 5.0
_LOOK_EVERY = 0.5
_CREDIT = 0.25
"""The most seconds of quiet that count between two calls, of which there are ten a second: a process that stood still received nothing."""
_HOPE_FOR = timedelta(seconds=60)
"""How long a paused or unsubscribed consumer may take to recover, a parked message to be checked, an outbox row to be sent."""


@dataclass(frozen=True, slots=True)
class Until:
    """When a run ends by itself.

    Args:
        idle: when no message has arrived for this long.
        deadline: after this long in any case; None = never.
    """

    idle: timedelta
    deadline: timedelta | None = None


class Retries(Observer):
    """Tracks when messages that this process has sent for a retry are redelivered.

    Args:
        clock: monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = Lock()
        self._due: list[float] = []
        self._last = float("-inf")

    def retried(
        self,
        consumer: str,
        delivery: Delivery,
        *,
        next_in: timedelta,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """Record a retry; those that are due are forgotten, since they count as messages again."""
        del consumer, delivery, reason, error
        due = self._clock.monotonic() + next_in.total_seconds()
        with self._mutex:
            self._forget_due()
            heappush(self._due, due)
            self._last = max(self._last, due)

    def waiting(self) -> tuple[int, float]:
        """Return the number of retries not yet due, and the seconds until the next one."""
        with self._mutex:
            self._forget_due()
            return len(self._due), self._due[0] - self._clock.monotonic() if self._due else 0.0

    def since_due(self) -> float:
        """Return the seconds since the last retry was due; it needs a moment to arrive."""
        return self._clock.monotonic() - self._last

    def _forget_due(self) -> None:
        now = self._clock.monotonic()
        while self._due and self._due[0] <= now:
            heappop(self._due)


class Ending:
    """Checks whether a run is over.

    Args:
        until: when it ends.
        clock: monotonic time.
        retries: the pending retries.
        rows: the state of the consumers.
        parked: the number of parked messages in the ledger, by consumer; queried only when nothing else is left.
        unsent: the number of published messages in the outbox that are still to be sent; queried likewise.
        say: called every few seconds with the reasons for waiting.
    """

    def __init__(
        self,
        until: Until,
        clock: Clock,
        retries: Retries,
        rows: Callable[[], tuple[ConsumerState, ...]],
        parked: Callable[[], Mapping[str, int]],
        unsent: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        self._until = until
        self._clock = clock
        self._retries = retries
        self._rows = rows
        self._parked = parked
        self._unsent = unsent
        self._say = say
        self._began = self._called = clock.monotonic()
        self._quiet_for = 0.0
        self._next_look = 0.0
        self._next_word = self._began + _SAY_EVERY
        self._stuck_since: float | None = None
        self._least_left: int | None = None
        self._left_since = 0.0

    def code(self, idle_for: float) -> int | None:
        """Return the exit code with which the run ends now; None while it goes on. Call it ten times a second.

        Args:
            idle_for: seconds since the last message arrived or ran.
        """
        now = self._clock.monotonic()
        self._note_quiet(now, min(idle_for, self._retries.since_due()))
        if now < self._next_look:
            return None
        self._next_look = now + _LOOK_EVERY
        rows = self._rows()
        quiet = self._quiet_for > self._until.idle.total_seconds()
        live = all(row.live for row in rows)
        parked, unsent = (self._parked(), self._unsent()) if quiet and live else ({}, 0)
        over = self._over(now, quiet=quiet, live=live, parked=sum(parked.values()), unsent=unsent)
        if over == 0:
            return 0
        words = self._words(rows, parked, unsent)
        deadline = self._until.deadline
        if deadline is not None and now - self._began >= deadline.total_seconds():
            self._say(f"the deadline of {format_duration(deadline)} has come; left over: {words}")
            return EXIT_LEFT_OVER
        if over is not None:
            self._say(f"ended, although something is left that makes no progress: {words}")
            return over
        if now >= self._next_word:
            self._next_word = now + _SAY_EVERY
            self._say(f"does not end yet: {words}")
        return None

    def _note_quiet(self, now: float, idle_for: float) -> None:
        passed, self._called = now - self._called, now
        quiet_before = self._quiet_for if idle_for >= passed else 0.0
        self._quiet_for = min(idle_for, quiet_before + min(passed, _CREDIT))

    def _over(self, now: float, *, quiet: bool, live: bool, parked: int, unsent: int) -> int | None:
        if not live:
            self._stuck_since = now if self._stuck_since is None else self._stuck_since
            return EXIT_LEFT_OVER if now - self._stuck_since > _HOPE_FOR.total_seconds() else None
        self._stuck_since = None
        if not quiet:
            return None
        left = parked + unsent
        if not left:
            return 0
        if self._least_left is None or left < self._least_left:
            self._least_left, self._left_since = left, now
        # Rows that a killed process had in hand become free only when its hold on them has ended.
        hope = _HOPE_FOR if unsent else min(_HOPE_FOR, self._until.idle * 5)
        patience = max(self._until.idle, hope)
        return EXIT_LEFT_OVER if now - self._left_since > patience.total_seconds() else None

    def _words(self, rows: tuple[ConsumerState, ...], parked: Mapping[str, int], unsent: int) -> str:
        found = [
            f"{row.consumer} is {'paused' if row.paused is not None else 'not subscribed'}"
            + (f" ({row.detail})" if row.detail else "")
            for row in rows
            if not row.live
        ]
        found += [f"{row.waiting} messages of {row.consumer} in this process" for row in rows if row.waiting]
        count, next_in = self._retries.waiting()
        if count:
            found.append(f"{count} retries, the next in {format_duration(_seconds(next_in))}")
        found += [f"{count} parked messages of {consumer}" for consumer, count in parked.items() if count]
        if unsent:
            found.append(f"{unsent} published messages in the outbox")
        return "; ".join(found) or f"nothing has come for less than {format_duration(self._until.idle)}"


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=max(1, round(seconds)))
