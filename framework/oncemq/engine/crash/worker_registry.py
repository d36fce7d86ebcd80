"""This process's row in the ledger's worker list, and how a missing sign-off affects its successor."""

import os
import socket
from datetime import datetime, timedelta
from uuid import uuid4

from oncemq.engine.plan import AppPlan
from oncemq.ledger.coordination import workers
from oncemq.ledger.database.connect import single

_SEEN_EVERY = timedelta(seconds=10)
_SILENT_AFTER = timedelta(seconds=60)


class WorkerRegistry:
    """Signs this process on and off, and detects machines that vanished.

    A process that dies leaves a flight recorder; a machine that dies does not. So when a worker of another
    machine, or of this one before a reboot, stops its heartbeat without signing off, all messages published before
    our start run alone. The stale row stays until we have run for a while, so that every process that
    starts at the same time sees it.
    """

    def __init__(self, plan: AppPlan) -> None:
        self._plan = plan
        self._name = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._on = False
        self._seen: datetime | None = None
        self._since: datetime | None = None
        self._silent: list[str] = []

    def distrust_before(self) -> datetime | None:
        """Return our start if a worker vanished without a flight recorder to read; None otherwise."""
        engine, now = self._plan.engine, self._plan.clock.now()
        if engine is None:
            return None
        with engine.begin() as connection:
            silent = workers.unclean(connection, self._plan.name, silent_since=now - _SILENT_AFTER)
        self._silent = [worker.worker for worker in silent]
        vanished = [
            worker for worker in silent if worker.host != socket.gethostname() or _before_boot(worker)
        ]
        return now if vanished else None

    def sign_on(self) -> None:
        """Record that this process runs."""
        engine, now = self._plan.engine, self._plan.clock.now()
        if engine is not None:
            with engine.begin() as connection:
                workers.started(
                    connection, self._plan.name, self._name, socket.gethostname(), os.getpid(), now
                )
            self._on = True
            self._seen = self._since = now

    def still_here(self) -> None:
        """Renew the heartbeat if it is old enough."""
        engine, now = self._plan.engine, self._plan.clock.now()
        if engine is None or not self._on or (self._seen is not None and now - self._seen < _SEEN_EVERY):
            return
        self._seen = now
        with single(engine) as connection:
            workers.seen(connection, self._plan.name, self._name, now)
            if self._silent and self._since is not None and now - self._since >= _SILENT_AFTER:
                workers.stopped(connection, self._plan.name, self._silent)
                self._silent = []
            connection.commit()

    def sign_off(self) -> None:
        """Sign off."""
        if self._on and self._plan.engine is not None:
            self._on = False
            with self._plan.engine.begin() as connection:
                workers.stopped(connection, self._plan.name, [self._name, *self._silent])


def _before_boot(worker: workers.Worker) -> bool:
    """Whether the machine was rebooted after the worker started: its recorder may never have reached the disk."""
    try:
        with open("/proc/uptime") as uptime:  # noqa: PTH123 - a pseudo file
            seconds = float(uptime.read().split()[0])
    except (OSError, ValueError):
        return False
    return datetime.now(worker.started_at.tzinfo) - timedelta(seconds=seconds) > worker.started_at
