"""Does the periodic work in the database beside the main thread, and notices a database that does not answer."""

import threading
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from oncemq.engine.plan import AppPlan
from oncemq.ledger.coordination.signals import LedgerSignals
from oncemq.ledger.database.connect import glance, place
from oncemq.ledger.database.open_connections import OpenConnections
from oncemq.observe.observers import Observers

_TICK = 1.0
ASK_EVERY = 5.0
"""Seconds between two statements that only ask whether it answers."""
SILENT_AFTER = 15.0
"""Seconds without an answer after which a new connection is tried."""
PROBE_WITHIN = 10.0
"""Seconds in which a new connection must have an answer."""


class DatabaseWatch:
    """Runs `work` every second in a thread; where that is blocked and a new connection has no answer either, ends all.

    Args:
        plan: the app.
        observers: receive what is noticed.
        work: must not raise.
        signals: what `work` reads from the first database, whose answers count here; None = nothing.
    """

    def __init__(
        self,
        plan: AppPlan,
        observers: Observers,
        work: Callable[[], None],
        signals: LedgerSignals | None = None,
    ) -> None:
        self._leading = plan.engine
        self._signals = signals
        self._clock = plan.clock
        self._observers = observers
        self._work = work
        self._connections = {
            engine: OpenConnections(engine) for engine in plan.engines if engine.dialect.name != "sqlite"
        }
        self._answered = dict.fromkeys(self._connections, plan.clock.monotonic())
        self._probes: dict[Engine, tuple[float, threading.Event]] = {}
        self._silent: set[Engine] = set()
        self._asked = 0.0
        self._began: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oncemq-database", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Start no more work, and let nothing wait for a database that does not answer."""
        self._stopping.set()
        for engine in self._silent:
            self._connections[engine].end()

    def join(self, grace: timedelta) -> None:
        """Wait until its last statement has ended, for `grace` at most: what it still uses then is not closed with the rest."""
        if self._thread.is_alive():
            self._thread.join(grace.total_seconds())

    def silence(self) -> float | None:
        """Return for how many seconds no database has answered; None while one does."""
        if not self._answered:
            return None
        seconds = self._clock.monotonic() - max(self._answered.values())
        return seconds if seconds > SILENT_AFTER + ASK_EVERY else None

    def look(self) -> None:
        """Try a new connection where the thread is blocked for too long; from the main thread, about once a second."""
        now, began = self._clock.monotonic(), self._began
        if began is None or now - began < SILENT_AFTER:
            return
        for engine in self._connections:
            self._judge(engine, now)

    def _judge(self, engine: Engine, now: float) -> None:
        since, answered = self._probes.get(engine, (None, None))
        if since is None or answered is None:
            self._probes[engine] = (now, self._probe(engine))
        elif answered.is_set():
            del self._probes[engine]
        elif now - since >= PROBE_WITHIN:
            del self._probes[engine]
            self._silent.add(engine)
            self._observers.warned(
                f"{place(engine)} accepts connections and does not answer; all connections to it are closed, "
                "and what waits for it is tried again"
            )
            self._connections[engine].end()

    def _probe(self, engine: Engine) -> threading.Event:
        """Open a connection of its own; the event is set when it is open, which takes answers to its first statements."""
        answered = threading.Event()

        def ask() -> None:
            pool = engine.pool.recreate()
            try:
                pool.connect().close()
                answered.set()
            except Exception as error:
                self._observers.failed(f"connecting to {place(engine)}", error)
            finally:
                pool.dispose()

        threading.Thread(target=ask, name="oncemq-probe", daemon=True).start()
        return answered

    def _run(self) -> None:
        while not self._stopping.wait(_TICK):
            self._began = self._clock.monotonic()
            self._work()
            if self._began - self._asked >= ASK_EVERY:
                self._asked = self._began
                for engine in self._connections:
                    self._ask(engine)
            self._began = None

    def _answered_work(self, engine: Engine) -> bool:
        """Return whether `work`, which ran just now, had an answer."""
        signals = self._signals
        return signals is not None and engine is self._leading and signals.answered(ASK_EVERY / 2)

    def _ask(self, engine: Engine) -> None:
        try:
            if not self._answered_work(engine):
                with glance(engine) as connection:
                    connection.exec_driver_sql("SELECT 1")
        except Exception as error:
            self._observers.failed(f"asking {place(engine)}", error)
            return
        self._answered[engine] = self._clock.monotonic()
        self._probes.pop(engine, None)
        if engine in self._silent:
            self._silent.discard(engine)
            self._observers.warned(f"{place(engine)} answers again")
