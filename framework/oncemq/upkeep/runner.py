"""Background work: one thread per process, and a lease per task so that one process runs it."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from threading import Event, Thread
from uuid import uuid4

from sqlalchemy import Engine, select

from oncemq.common.clock import Clock
from oncemq.contracts.strategy import UpkeepTask
from oncemq.ledger.coordination import leases
from oncemq.ledger.database.connect import glance, single
from oncemq.ledger.database.server_clock import MEASURE_EVERY, LedgerClock

_SHORTEST_LEASE = timedelta(seconds=10)
_PACE_LEASE = timedelta(seconds=30)
"""Lease of the process that looks more often than others; when it has died, the others go on at their own pace."""
_LONGEST_WAIT = 1.0
_IN_A_MOMENT = 0.1
_TOGETHER = 0.5
"""Seconds between two steps of one round; one that begins later counts from its own beginning."""
_REST = 2.0
"""Rest after a step that has more to do, as a multiple of its time, unless the task says otherwise."""


class Upkeep:
    """Runs due tasks whose lease this process holds.

    Args:
        engine: the app's database.
        tasks: with names unique in the app.
        clock: the time source.
        failed: receives the activity and the error; the task is due again after its pause.
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
        self._quiet_until = 0.0
        self._server_clock = clock if isinstance(clock, LedgerClock) else None
        self._measure_at = clock.monotonic()
        # Time until which our lease is known to be valid, by task.
        self._held: dict[str, float] = {}
        # By the last answer: leases of others, and tasks that have nothing to do.
        self._taken: AbstractSet[str] = frozenset()
        self._idle: AbstractSet[str] = frozenset()
        self._goes_on: set[str] = set()
        self._asked_at = 0.0
        self._stopping = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start; tasks are due at once."""
        self._thread = Thread(target=self._run, name="oncemq-upkeep", daemon=True)
        self._thread.start()

    def stop(self, *, grace: timedelta = timedelta(seconds=10)) -> None:
        """Finish the running step and release the leases; may be called twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(grace.total_seconds())

    def run_due(self) -> float:
        """Run a step of each due task, until none is due; returns the seconds until the next is due.

        Between two steps of a task the others have their turn: a purge of millions of rows delays nothing.
        """
        self._measure()
        while any(self._is_due(task) for task in self._tasks):
            due = self._due_together()
            self._ask(due)
            # The longest waiting task is first: otherwise a task that always has more would be the only one to run.
            for task in sorted(due, key=self._when_due):
                if self._stopping.is_set():
                    return 0.0
                if self._is_due(task):  # the step before may have begun a rest
                    self._step(task)
        now = self._clock.monotonic()
        return max(0.0, min((self._when(task) for task in self._tasks), default=now + _LONGEST_WAIT) - now)

    def _due_together(self) -> list[UpkeepTask]:
        """Return the tasks that are due, and those due in a moment whose questions can be asked in the same statement."""
        now = self._clock.monotonic()
        soon = now + _IN_A_MOMENT
        for task in self._tasks:
            if task.wanted is not None and now < self._when(task) <= soon:
                self._due[task.name] = now
        return [task for task in self._tasks if self._is_due(task)]

    def _when_due(self, task: UpkeepTask) -> float:
        return self._due[task.name]

    def _when(self, task: UpkeepTask) -> float:
        due = self._when_due(task)
        return due if task.rest is None else max(due, self._quiet_until)

    def _is_due(self, task: UpkeepTask) -> bool:
        return self._when(task) <= self._clock.monotonic()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(min(self.run_due(), _LONGEST_WAIT))
        for name in sorted(self._held):
            self._release(name)

    def _step(self, task: UpkeepTask) -> None:
        began = self._clock.monotonic()
        # Tasks that were due together are due together again, and are asked about in one statement.
        base = self._asked_at if began - self._asked_at < _TOGETHER else began
        self._due[task.name] = base + (task.pace or task.every).total_seconds()
        if task.pace is not None and self._leads(task):
            self._due[task.name] = base + task.every.total_seconds()
        more = self._run_once(task)
        now = self._clock.monotonic()
        took = now - began
        (self._goes_on.add if more else self._goes_on.discard)(task.name)
        if more:
            self._due[task.name] = now + (_REST * took if task.rest is None else 0.0)
        if task.rest is not None:
            # An urgent task is not delayed by the rest of another; a failure that took long causes no long rest.
            waiting = (
                other.rest()
                for other in self._tasks
                if other.rest is not None and self._when_due(other) <= now
            )
            rest = min([task.rest(), *waiting]) * took
            self._quiet_until = now + min(rest, task.every.total_seconds())

    def _run_once(self, task: UpkeepTask) -> bool:
        try:
            if task.name in self._idle or not (task.everywhere or self._may_lead(task)):
                return False
            return task.run(self._engine)
        except Exception as error:
            self._failed(f"upkeep {task.name!r}", error)
            return False

    def _leads(self, task: UpkeepTask) -> bool:
        """Return whether this process is the one that looks more often; if that is unknown, it is not."""
        try:
            return self._may_lead(task)
        except Exception as error:
            self._failed(f"taking the lease of {task.name!r}", error)
            return False

    def _ask(self, due: Sequence[UpkeepTask]) -> None:
        """Ask in one statement whose leases the due tasks are, and whether they have anything to do."""
        fresh = [task for task in due if task.name not in self._goes_on]
        now, dialect = self._clock.now(), self._engine.dialect
        leased = [
            task.name
            for task in fresh
            if (task.pace is not None or not task.everywhere) and not self._is_held(task.name)
        ]
        wanted = {task.name: task.wanted(dialect) for task in fresh if task.wanted is not None}
        columns = [
            *(leases.taken(dialect, name, self._owner, now=now) for name in leased),
            *wanted.values(),
        ]
        self._taken = self._idle = frozenset()
        self._asked_at = self._clock.monotonic()
        if not columns:
            return
        try:
            with glance(self._engine) as connection:
                asked = select(*(column.label(f"a{place}") for place, column in enumerate(columns)))
                answers = list(connection.execute(asked).one())
        except Exception as error:
            # Each task looks for itself: one task's condition that is wrong must not stop the others.
            self._failed("asking what is due", error)
            return
        self._taken = {name for name, taken in zip(leased, answers, strict=False) if taken}
        self._idle = {name for name, there in zip(wanted, answers[len(leased) :], strict=True) if not there}

    def _measure(self) -> None:
        """Compare the clocks, once a minute."""
        if self._server_clock is None or self._clock.monotonic() < self._measure_at:
            return
        self._measure_at = self._clock.monotonic() + MEASURE_EVERY
        try:
            self._server_clock.measure(self._engine)
        except Exception as error:
            self._failed("comparing the clock with the database's", error)

    def _may_lead(self, task: UpkeepTask) -> bool:
        """Return whether this process runs the task; never while its clock is far from the database's."""
        if self._server_clock is not None and self._server_clock.untrusted(self._engine):
            return False
        return self._holds(task)

    def _holds(self, task: UpkeepTask) -> bool:
        """Return whether the lease is ours; asks the database when half of it is over."""
        return self._is_held(task.name) or (task.name not in self._taken and self._acquire(task))

    def _is_held(self, name: str) -> bool:
        return self._held.get(name, 0.0) > self._clock.monotonic()

    def _acquire(self, task: UpkeepTask) -> bool:
        least = _SHORTEST_LEASE if task.pace is None else _PACE_LEASE
        lease, now, asked = max(2 * task.every, least), self._clock.now(), self._clock.monotonic()
        with single(self._engine) as connection:
            ours = leases.acquire(connection, task.name, self._owner, now=now, until=now + lease)
            connection.commit()
        if ours:
            self._held[task.name] = asked + lease.total_seconds() / 2
        else:
            self._held.pop(task.name, None)
        return ours

    def _release(self, name: str) -> None:
        try:
            with self._engine.begin() as connection:
                leases.release(connection, name, self._owner)
        except Exception as error:
            self._failed(f"giving back the lease of {name!r}", error)
