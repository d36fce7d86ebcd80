"""Runs an app against its real brokers, in threads as in production, and waits until it is at rest."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Final

from sqlalchemy import Engine, select

from oncemq.engine.application import Application, create_tables
from oncemq.engine.plan import AppPlan
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import delayed, outbox, parking
from oncemq.observe.monitor import Monitor
from oncemq.testing.kit.outcomes import OutcomeRecorder

PATIENCE: Final = 30.0
"""Seconds to wait for what must happen."""
LONGEST_WAIT: Final = timedelta(seconds=60)
_LOOK_EVERY: Final = 0.01


class ThreadedProcess:
    """One process of an app.

    Args:
        plan: the app.
        recorder: its observer.
        point: called with the name of each kill point reached.
    """

    def __init__(self, plan: AppPlan, recorder: OutcomeRecorder, point: Callable[[str], None]) -> None:
        self._plan = plan
        self._recorder = recorder
        monitor = Monitor(None, plan.clock, others=[recorder, *plan.observers], redact=plan.redact)
        self._application = Application(plan, monitor=monitor, point=point)
        self._started: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"oncemq-test-{plan.name}", daemon=True)

    def start(self) -> None:
        """Create the ledger's tables, and return when every consumer is subscribed.

        Raises:
            OnceMQError: the app could not start.
        """
        if self._plan.engines:
            create_tables(self._plan)
        self._thread.start()
        error = self._started.get()
        if error is not None:
            self._thread.join()
            raise error

    def stop(self) -> None:
        """Stop in order."""
        self._application.stop()
        self._thread.join()

    def settle(self, reached: Callable[[], bool] = lambda: True) -> None:
        """Wait until every message was delivered, nothing runs or waits to be sent, and a condition is true.

        Raises:
            TimeoutError: that has not happened within half a minute.
        """
        self._wait(lambda: self._recorder.all_seen() and reached() and self._at_rest())

    def advance(self, by: timedelta) -> None:
        """Wait for so long, then until what was due meanwhile is done.

        Raises:
            ValueError: that is more than a minute.
            TimeoutError: it has not ended half a minute later.
        """
        if by > LONGEST_WAIT:
            raise ValueError(f"with real=True time passes by waiting: {by} is more than {LONGEST_WAIT}")
        until = time.monotonic() + by.total_seconds()
        with self._recorder.changed:
            due = self._recorder.retries_until(until)
            while (left := until - time.monotonic()) > 0:
                self._recorder.changed.wait(left)
        self._wait(lambda: due() and self._at_rest() and not self._any_due())

    def ends_when(self, dying: Callable[[], bool]) -> bool:
        """Wait until a worker is dying and the process has ended by itself; False if it is at rest before.

        Raises:
            TimeoutError: neither has happened within half a minute.
        """
        self._wait(lambda: dying() or (self._recorder.all_seen() and self._at_rest()))
        if not dying():
            return False
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise TimeoutError("the process does not end")
        return True

    def _run(self) -> None:
        try:
            self._application.run(started=lambda: self._started.put(None))
        except BaseException as error:
            self._started.put(error)

    def _wait(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        with self._recorder.changed:
            while not reached():
                if time.monotonic() > until:
                    raise TimeoutError(f"not at rest after {PATIENCE:.0f} s: {self._recorder}")
                self._recorder.changed.wait(_LOOK_EVERY)

    def _at_rest(self) -> bool:
        rows = self._application.state().consumers
        return not any(row.waiting for row in rows) and not any(map(_unsent, self._plan.engines))

    def _any_due(self) -> bool:
        return any(_waiting_due(self._plan, engine) for engine in self._plan.engines)


def _unsent(engine: Engine) -> bool:
    """Return whether messages wait in the outbox that no broker has refused yet."""
    unsent = select(outbox.TABLE.c.id).where(outbox.TABLE.c.attempts == 0).limit(1)
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        return connection.execute(unsent).first() is not None


def _waiting_due(plan: AppPlan, engine: Engine) -> bool:
    """Return whether a parked message, or one that was published for later, is due."""
    now = plan.clock.now()
    due = select(parking.TABLE.c.id).where(parking.TABLE.c.due_at <= now).limit(1)
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        return connection.execute(due).first() is not None or delayed.any_due(connection, plan.name, now)
