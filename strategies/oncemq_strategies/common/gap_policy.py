"""Policy for a message that has waited too long for its predecessors."""

import threading
from datetime import datetime, timedelta
from typing import Final, Self

import structlog

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Place, Verdict, parked, reject, wait
from oncemq.message.headers import WAITING_SINCE, time_of
from oncemq.retry.backoff import pause_before_turn
from oncemq_strategies.common.options import Options

_TIMEOUT: Final = timedelta(minutes=10)
GAP: Final = "gap"
"""Reason of dead letters after `gap_timeout`, and of history rows about skipped numbers."""
OPTIONS: Final = ("park_limit", "gap_timeout", "on_gap")
"""Options about waiting messages."""


class Gaps:
    """Limits of waiting: how long a parked message may wait, its verdict after that, and the warning.

    Args:
        strategy: its registry name, for the warning.
        clock: where time comes from.
        limit: how many messages of one key may wait.
        timeout: how long a message may wait before `on_gap` applies.
        on_gap: `alert`, `dead_letter` or `skip`; the strategy carries out the last.
        look_again: how often a waiting message is checked without a wake-up; None = at `timeout`.
    """

    def __init__(
        self,
        strategy: str,
        clock: Clock,
        *,
        limit: int,
        timeout: timedelta,
        on_gap: str,
        look_again: timedelta | None = None,
    ) -> None:
        self._strategy = strategy
        self._clock = clock
        self._limit = limit
        self.timeout = timeout
        self.on_gap = on_gap
        self._look_again = min(look_again or timeout, timeout)
        self._alerted: dict[str, datetime] = {}
        self._alerting = threading.Lock()  # workers share a strategy

    @classmethod
    def of(
        cls,
        given: Options,
        strategy: str,
        clock: Clock,
        early: str,
        *,
        look_again: timedelta | None = None,
        no_skip: str = "",
    ) -> Self:
        """Read the options; `no_skip` is the advice where nothing can be skipped."""
        limit = given.park_limit(early)
        given.for_waiting(early, "gap_timeout", "on_gap")
        timeout = given.duration("gap_timeout")
        if timeout is not None and timeout <= timedelta(0):
            given.refuse("without any time no gap could ever close", "write one like 10m", name="gap_timeout")
        on_gap = given.choice("on_gap", ["alert", "dead_letter", "skip"], "alert")
        if on_gap == "skip" and early == "retry":
            no_skip = "write `early: park`: what the broker keeps is not compared with what else waits"
        if on_gap == "skip" and no_skip:
            given.refuse("nothing can be skipped here", no_skip, name="on_gap")
        return cls(
            strategy, clock, limit=limit, timeout=timeout or _TIMEOUT, on_gap=on_gap, look_again=look_again
        )

    def too_long(self, item: Item) -> bool:
        """Return whether a message has waited for `gap_timeout`."""
        return self._rest(item) <= timedelta(0)

    def wait(self, run: Run, item: Item, number: int | None, why: str) -> Verdict:
        """Return the verdict on an early message: it waits on, or it has waited too long.

        Args:
            run: the current run.
            item: the message.
            number: its place in its key's order, where it has one.
            why: the awaited message, in words.
        """
        rest = self._rest(item)
        if rest <= timedelta(0):
            if self.on_gap == "dead_letter":
                return reject(f"{why}; it has waited for {format_duration(self.timeout)}", code=GAP)
            run.notes.setdefault(self, {})[item] = why
            rest = self.timeout
        return parked(why, Place(number, min(self._look_again, rest), self._limit))

    def put_off(self, run: Run, item: Item, why: str) -> Verdict:
        """Return the verdict on an early message that the broker keeps: no attempt is charged."""
        headers, now = item.delivery.message.headers, self._clock.now()
        since = time_of(headers, WAITING_SINCE)
        if since is not None and since + self.timeout <= now:
            if self.on_gap == "dead_letter":
                return reject(f"{why}; it has waited for {format_duration(self.timeout)}", code=GAP)
            run.notes.setdefault(self, {})[item] = why
        return wait(pause_before_turn(headers, now), why)

    def alert(self, run: Run) -> None:
        """Warn about messages that have waited too long: each key once per `gap_timeout`."""
        late: dict[Item, str] = run.notes.get(self, {})
        if self.on_gap != "alert" or not late:
            return
        now = self._clock.now()
        first = {item.key: item for item in reversed(late)}
        with self._alerting:
            self._alerted = {key: at for key, at in self._alerted.items() if now - at < self.timeout}
            fresh = {key: item for key, item in first.items() if key not in self._alerted}
            self._alerted.update(dict.fromkeys(fresh, now))
        for item, why in late.items():
            if fresh.get(item.key) is item:
                self._warn(run, item, why)

    def _warn(self, run: Run, item: Item, why: str) -> None:
        consumer = run.consumer.partition(".")[2]
        structlog.get_logger("oncemq").warning(
            f"{self._strategy} gap", consumer=consumer, key=item.key, detail=why
        )

    def _rest(self, item: Item) -> timedelta:
        """Return how long a message may still wait; zero or less when that time is over."""
        since = item.delivery.parked_at
        return self.timeout if since is None else since + self.timeout - self._clock.now()
