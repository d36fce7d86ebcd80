"""Worker number leased from the ledger, so that no two processes make ids with the same number.

Machines' clocks differ, and no lease can prevent that – but here the clock compared with the lease's end is
the clock whose time goes into the ids. A holder makes ids only for times before the end of its lease, and the
next holder begins when its own clock has passed that end; so whichever clock is wrong, their ids differ.
For the same reason a lease is never deleted: a released one ends after the last id's time.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Thread
from uuid import uuid4

from sqlalchemy import Engine, select

from oncemq.common.clock import Clock
from oncemq.errors import WorkerNumberLost
from oncemq.ids.layout import WORKERS
from oncemq.ledger.coordination import leases

_AGAIN = 1.0
"""Seconds until a failed renewal is retried."""
_LOG = logging.getLogger("oncemq.ids")


@dataclass(frozen=True, slots=True)
class Held:
    """A lease: ids may be made for the times within it.

    Args:
        number: the worker number.
        since: when it was taken or renewed, aware; another process may have used the number before.
        until: when it ends, aware.
    """

    number: int
    since: datetime
    until: datetime


class WorkerNumber:
    """Holds a number and renews its lease in the background.

    Attributes:
        held: the newest lease.

    Raises:
        WorkerNumberLost: every number is in use.
    """

    def __init__(self, engine: Engine, name: str, lease: timedelta, clock: Clock) -> None:
        self._engine, self._name, self._lease, self._clock = engine, name, lease, clock
        self._owner = uuid4().hex
        self.held = self._take()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="oncemq-worker-number", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Extend the lease; takes another number if another process has this one by now."""
        self.held = self._acquire(self.held.number) or self._take()

    def give_back(self, used_until: datetime) -> None:
        """Let another process have the number, for times from `used_until` on; may be called twice."""
        self._stopping.set()
        self._thread.join()
        with self._engine.begin() as connection:
            leases.end(connection, self._lease_name(self.held.number), self._owner, at=used_until)

    def _run(self) -> None:
        pause = self._lease.total_seconds() / 3
        while not self._stopping.wait(pause):
            pause = self._lease.total_seconds() / 3
            try:
                self.renew()
            except Exception as error:
                _LOG.warning("renewing the worker number of %r failed: %s", self._name, type(error).__name__)
                pause = min(pause, _AGAIN)

    def _take(self) -> Held:
        for number in self._free():
            held = self._acquire(number)
            if held is not None:
                return held
        raise WorkerNumberLost(
            f"all {WORKERS} worker numbers of {self._name!r} are in use, or were until a moment ago: stop processes, "
            "or give this kind of ids another name"
        )

    def _free(self) -> list[int]:
        names = {self._lease_name(number): number for number in range(WORKERS)}
        first, last = min(names), max(names)
        taken = select(leases.TABLE.c.name).where(
            leases.TABLE.c.name >= first,
            leases.TABLE.c.name <= last,
            leases.TABLE.c.until >= self._clock.now(),
            leases.TABLE.c.owner != self._owner,
        )
        with self._engine.begin() as connection:
            in_use = set(connection.execute(taken).scalars())
        return [number for name, number in names.items() if name not in in_use]

    def _acquire(self, number: int) -> Held | None:
        """Return the lease of a number, if it is ours now."""
        now = self._clock.now()
        until = now + self._lease
        with self._engine.begin() as connection:
            ours = leases.acquire(connection, self._lease_name(number), self._owner, now=now, until=until)
        return Held(number, now, until) if ours else None

    def _lease_name(self, number: int) -> str:
        return f"ids {self._name} {number:04d}"
