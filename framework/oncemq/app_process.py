"""Runs a loaded app in this process, with logging and signal handling."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from oncemq.config.build.plan import LoadedApp
from oncemq.engine.application import Application
from oncemq.engine.stop_conditions import Retries, Until
from oncemq.engine.supervision.recycling import refuse_recycling
from oncemq.observe.endpoint import LocalSocket
from oncemq.observe.events import Observer
from oncemq.observe.logs import configure
from oncemq.observe.monitor import Monitor
from oncemq.observe.otel.export import exported, instrumented
from oncemq.observe.state import StateSource

EXIT_STOPPED_AT_ONCE = 130
"""A second signal came while draining."""


def run_loaded(
    loaded: LoadedApp,
    *,
    until_idle: timedelta | None = None,
    deadline: timedelta | None = None,
    others: Sequence[Observer] = (),
    answers_on: LocalSocket | None = None,
    supervised: bool = False,
    process: int | None = None,
    watched: Callable[[StateSource], None] = lambda _: None,
) -> int:
    """Run an app in this process, with logging and signal handling; returns the exit code.

    Args:
        loaded: from `oncemq.config.load`, or an `App`.
        until_idle: end when no message has arrived for this long.
        deadline: end after this long in any case; only together with `until_idle`.
        others: observers in addition to the app's own.
        answers_on: where a supervisor asks for metrics and health, which it serves on the app's address.
        supervised: a supervisor decides about a second signal: it kills this process.
        process: the number of this worker process; None if it has none.
        watched: called with the source of the app's state, before it runs.

    Raises:
        OnceMQError: the app could not start.
    """
    logging = loaded.model.logging
    if logging is None:
        configure(secrets=loaded.secrets)
    elif logging.configure:
        configure(logging.level, logging.format, secrets=loaded.secrets, row_values=logging.row_values)
    plan = loaded.plan
    if not supervised:
        refuse_recycling(plan.recycle)
    retries = Retries(plan.clock)
    seeing = others if until_idle is None else [*others, retries]
    seeing = [*seeing, *plan.observers]
    with exported(plan.name, traces=plan.tracing is not None):
        monitor = Monitor(
            answers_on or plan.http,
            plan.clock,
            others=seeing,
            redact=plan.redact,
            instruments=instrumented(plan.name, process),
        )
        application = Application(plan, monitor=monitor, retries=retries)
        watched(application.state)
        with _signals(application.stop, supervised=supervised):
            return application.run(None if until_idle is None else Until(until_idle, deadline))


@contextmanager
def _signals(stop: Callable[[], None], *, supervised: bool) -> Iterator[None]:
    """The first signal drains, the second ends the process at once; only the main thread receives signals.

    A service manager may signal all processes at once, and the supervisor asks its workers, too: for them that is one signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def obey(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1 and not supervised:
            os._exit(EXIT_STOPPED_AT_ONCE)
        stop()

    numbers = [number for number in (signal.SIGTERM, signal.SIGINT) if _is_ours(number)]
    previous = {number: signal.signal(number, obey) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_ours(number: signal.Signals) -> bool:
    """A supervisor ignores Ctrl-C in its children, since it decides itself how to react."""
    return signal.getsignal(number) is not signal.SIG_IGN
