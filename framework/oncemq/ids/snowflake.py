"""Snowflake ids: 64 bits of time, worker and sequence, sorted by creation time."""

import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import Self

from sqlalchemy import Engine

from oncemq.common.clock import Clock, SystemClock
from oncemq.common.durations import format_duration
from oncemq.common.problems import Problem
from oncemq.errors import ClockSetBack, ConfigError, IdsUnavailable, WorkerNumberLost
from oncemq.ids.layout import (
    LAST_MILLISECOND,
    PER_MILLISECOND,
    SEQUENCE_BITS,
    TIME_SHIFT,
    Parts,
    milliseconds,
    moment_of,
    take_apart,
)
from oncemq.ids.worker_number import WorkerNumber
from oncemq.ledger.database.engine import make_engine

__all__ = ["Parts", "Snowflake"]

ABSORBED = timedelta(milliseconds=50)
"""The longest clock step back that is waited for; NTP's usual corrections are smaller."""
SHORTEST_LEASE = timedelta(seconds=3)
LONGEST_NAME = 200
_POLL_SECONDS = 0.0002


class Snowflake:
    """Makes ids that no other process with the same ledger and name makes, 4,096 per millisecond.

    Make one per process – after a fork, not before – and share it between threads; close it at the end, or
    use it in a `with`. A process that dies keeps its worker number until the lease ends; there are 1,024.

    Args:
        database: the ledger's URL, or an engine.
        name: kind of ids; ids of different kinds may be equal.
        lease: how long a worker number is ours without renewal, at least 3 s. It is renewed three times as often. If
            the database is away for longer, ids stop with `WorkerNumberLost` until it is back.
        clock: the time source.
        pause: waits for so many seconds.

    Raises:
        WorkerNumberLost: every worker number is in use.
        ConfigError: the lease is too short, or the database cannot be used.
    """

    def __init__(
        self,
        database: str | Engine,
        name: str = "ids",
        *,
        lease: timedelta = timedelta(seconds=30),
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        _require_sound(name, lease)
        engine = make_engine(database, pool_size=1) if isinstance(database, str) else database
        self._own_engine = engine if isinstance(database, str) else None
        self._clock, self._pause = clock or SystemClock(), pause
        self._lock = Lock()
        self._process = os.getpid()
        self._closed = False
        self._worker = WorkerNumber(engine, name, lease, self._clock)
        self._last, self._used = -1, PER_MILLISECOND
        """The millisecond of the last ids, and how many of it are used."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the worker number; no ids can be made afterwards. May be called twice."""
        with self._lock:
            if self._closed or self._process != os.getpid():
                return
            self._closed = True
            self._worker.give_back(moment_of(max(self._last, milliseconds(self._worker.held.since)) + 1))
            if self._own_engine is not None:
                self._own_engine.dispose()

    def next(self) -> int:
        """Return a new id, larger than all earlier ids of this object.

        Raises:
            ClockSetBack: the machine's clock went back by more than 50 ms.
            WorkerNumberLost: the lease has ended and could not be renewed.
            IdsUnavailable: it is closed, or was made before a fork.
        """
        return self.batch(1)[0]

    def batch(self, count: int) -> list[int]:
        """Return new ids, ascending; the fast way to make many. Raises as `next`, having made none."""
        ids: list[int] = []
        with self._lock:
            self._refuse_if_unusable()
            while len(ids) < count:
                ids += self._piece(count - len(ids))
        return ids

    @staticmethod
    def parts(number: int) -> Parts:
        """Return the parts of an id: time, worker and number within the millisecond.

        Raises:
            ValueError: it is not an id.
        """
        return take_apart(number)

    def _piece(self, wanted: int) -> range:
        """Return the next ids of one millisecond, at least one."""
        held = self._worker.held
        begun = milliseconds(held.since) - 1
        if self._last < begun:
            self._last, self._used = begun, PER_MILLISECOND
        now = self._now()
        while now <= self._last and self._used == PER_MILLISECOND:
            self._pause(_POLL_SECONDS)
            now = self._now()
        if now > self._last:
            self._last, self._used = now, 0
        self._require_lease(held.until)
        begin = self._used
        self._used = min(PER_MILLISECOND, begin + wanted)
        first = self._last << TIME_SHIFT | held.number << SEQUENCE_BITS
        return range(first | begin, (first | self._used - 1) + 1)

    def _now(self) -> int:
        now = milliseconds(self._clock.now())
        if not 0 <= now <= LAST_MILLISECOND:
            raise IdsUnavailable("the machine's clock is outside the range of ids, 2024 to 2093")
        back = self._last - now
        if back > ABSORBED / timedelta(milliseconds=1):
            raise ClockSetBack(
                f"the machine's clock is {format_duration(timedelta(milliseconds=back))} behind the time of the last id: "
                f"up to {format_duration(ABSORBED)} are waited for. Ids can be made again when it has caught up; "
                "let NTP slew the clock instead of setting it"
            )
        return now

    def _require_lease(self, until: datetime) -> None:
        # The whole millisecond must lie within the lease: the next holder begins right after its end.
        if moment_of(self._last + 1) > until:
            raise WorkerNumberLost(
                "the lease of this process's worker number has ended and could not be renewed, so another process may "
                "have the number: is the database there? Ids go on when the lease is renewed"
            )

    def _refuse_if_unusable(self) -> None:
        if self._closed:
            raise IdsUnavailable("this Snowflake is closed: make a new one")
        if self._process != os.getpid():
            raise IdsUnavailable(
                "this Snowflake was made before a fork, so the parent has the same worker number: make one in each process"
            )


def _require_sound(name: str, lease: timedelta) -> None:
    problems = []
    if lease < SHORTEST_LEASE:
        text = f"a lease of {format_duration(lease)} ends before it can be renewed"
        problems.append(Problem(text, f"write at least {format_duration(SHORTEST_LEASE)}"))
    if not 0 < len(name.encode()) <= LONGEST_NAME:
        problems.append(Problem(f"a kind of ids needs a name of at most {LONGEST_NAME} bytes"))
    if problems:
        raise ConfigError(problems)
