"""Background work: one thread in each process, and a lease for each task so that one process does it."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event, Thread
from uuid import uuid4

from sqlalchemy import Engine

from oncemq.clock import Clock
from oncemq.ledger import leases
from oncemq.strategy import UpkeepTask

_SHORTEST_LEASE = timedelta(seconds=10)
_LONGEST_WAIT = 1.0
_SHARE = 2.0
"""After a step that has more to do, rest so many times as long as it took: consumers come first."""


class Upkeep:
    """Runs tasks when they are due, those whose lease this process holds.

    Args:
        engine: the app's database.
        tasks: what to do; their names are unique in the app.
        clock: where time comes from.
        failed: told what was being done and the error; the task is due again after its pause.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: Sequence[UpkeepTask],
        clock: Clock,
        failed: Callable[[str, BaseException], None] = lambda _doing, _error: None,
    ) -> None:
        self._engine = engine
        self._tasks = tuple(tasks)
        self._clock = clock
        self._failed = failed
        self._owner = uuid4().hex
        self._due = {task.name: clock.monotonic() for task in tasks}
        self._held: set[str] = set()
        self._stopping = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin; tasks are due at once."""
        self._thread = Thread(target=self._run, name="oncemq-upkeep", daemon=True)
        self._thread.start()

    def stop(self, *, grace: timedelta = timedelta(seconds=10)) -> None:
        """Finish the step that is running and give the leases back; may be called twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(grace.total_seconds())

    def run_due(self) -> float:
        """Do what is due, each task until it has no more to do; returns the seconds until something is due."""
        for task in self._tasks:
            if self._stopping.is_set():
                break
            if self._due[task.name] <= self._clock.monotonic():
                self._due[task.name] = self._clock.monotonic() + task.every.total_seconds()
                self._work_off(task)
        return max(0.0, min(self._due.values(), default=_LONGEST_WAIT) - self._clock.monotonic())

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(min(self.run_due(), _LONGEST_WAIT))
        for name in sorted(self._held):
            self._release(name)

    def _work_off(self, task: UpkeepTask) -> None:
        try:
            while (task.everywhere or self._acquire(task)) and not self._stopping.is_set():
                began = self._clock.monotonic()
                if not task.run(self._engine):
                    return
                self._stopping.wait(_SHARE * (self._clock.monotonic() - began))
        except Exception as error:
            self._failed(f"upkeep {task.name!r}", error)

    def _acquire(self, task: UpkeepTask) -> bool:
        now = self._clock.now()
        until = now + max(2 * task.every, _SHORTEST_LEASE)
        with self._engine.begin() as connection:
            ours = leases.acquire(connection, task.name, self._owner, now=now, until=until)
        (self._held.add if ours else self._held.discard)(task.name)
        return ours

    def _release(self, name: str) -> None:
        try:
            with self._engine.begin() as connection:
                leases.release(connection, name, self._owner)
        except Exception as error:
            self._failed(f"giving back the lease of {name!r}", error)
