"""Runs an app in threads of a process with other tasks: a web service, a test."""

from queue import SimpleQueue
from threading import Thread

from oncemq.engine.application import Application
from oncemq.engine.plan import AppPlan
from oncemq.engine.supervision.recycling import refuse_recycling
from oncemq.observe.monitor import Monitor
from oncemq.observe.otel.export import instrumented


class RunningApp:
    """One application in its own thread.

    Args:
        plan: the resolved configuration of the app.

    Raises:
        ConfigError: the app is to be recycled, for which it needs a supervisor.
    """

    def __init__(self, plan: AppPlan) -> None:
        refuse_recycling(plan.recycle)
        monitor = Monitor(
            plan.http,
            plan.clock,
            others=plan.observers,
            redact=plan.redact,
            instruments=instrumented(plan.name),
        )
        self._application = Application(plan, monitor=monitor)
        self._code = 1
        self._started: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"oncemq-{plan.name}", daemon=True)

    def start(self) -> None:
        """Return when every consumer is subscribed.

        Raises:
            OnceMQError: the app could not start; everything opened so far is closed.
        """
        self._thread.start()
        error = self._started.get()
        if error is not None:
            self._thread.join()
            raise error

    def stop(self) -> int:
        """Stop in order; returns the exit code."""
        self._application.stop()
        self._thread.join()
        return self._code

    def _run(self) -> None:
        try:
            self._code = self._application.run(started=lambda: self._started.put(None))
        except BaseException as error:
            self._started.put(error)
