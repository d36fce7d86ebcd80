"""The app behind the page: its plan, its overview at most every two seconds, and work that goes on after an answer."""

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oncemq.common.error_text import describe
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.config.load import Loadable
from oncemq.dashboard.protection import Forms
from oncemq.engine.plan import AppPlan
from oncemq.operate import databases
from oncemq.operate.overview import Overview
from oncemq.operate.overview_source import OverviewSource

_FRESH = 2.0
"""Seconds for which an overview is shown again, however many people look at it."""
_KEPT_JOBS = 50


@dataclass(slots=True)
class Job:
    """Work that a page has begun.

    Args:
        number: as in its address.
        what: the command, such as `dead-letters replay`.
        selection: what it is about, for people.
        total: how many there are; None = unknown.
        done: how many are done.
        error: why it has ended early.
        running: whether it is still at it.
        stop: set to end it after the present batch.
    """

    number: int
    what: str
    selection: str
    total: int | None
    done: int = 0
    error: str = ""
    running: bool = True
    stop: threading.Event = field(default_factory=threading.Event)


class Site:
    """What all pages share; safe from any thread.

    Args:
        app: the app's files in order, `module:app`, or an `App`.
        allow_changes: whether pages may change anything.

    Raises:
        ConfigError: the app is invalid.
    """

    def __init__(self, app: "str | Path | Sequence[str | Path] | Loadable", *, allow_changes: bool) -> None:
        self.load = _loader(app)
        self.allow_changes = allow_changes
        self.forms = Forms()
        self.loaded = self.load()
        self._source: OverviewSource | None = None
        self._lock = threading.Lock()
        self._overview: tuple[float, Overview] | None = None
        self._numbers = itertools.count(1)
        self._jobs: OrderedDict[int, Job] = OrderedDict()

    @property
    def plan(self) -> AppPlan:
        """The app's plan, for its databases; brokers are opened with a plan of their own."""
        return self.loaded.plan

    def overview(self) -> Overview:
        """Return the state of the app, at most two seconds old."""
        with self._lock:
            now = time.monotonic()
            if self._overview is None or now - self._overview[0] >= _FRESH:
                if self._source is None:
                    self._source = OverviewSource(lambda: self.load().plan)
                self._overview = (now, self._source.read())
            return self._overview[1]

    def forget_overview(self) -> None:
        """Read it again when it is next shown."""
        with self._lock:
            self._overview = None

    @contextmanager
    def brokers(self) -> Iterator[AppPlan]:
        """Yield a plan whose brokers are not connected yet; its databases answer."""
        plan = self.load().plan
        try:
            if plan.engine is not None:
                databases.prove(plan)
            yield plan
        finally:
            for engine in plan.engines:
                engine.dispose()

    def begin(self, what: str, selection: str, total: int | None, work: Callable[[Job], None]) -> Job:
        """Let `work` go on in a thread; it counts in its job."""
        job = Job(next(self._numbers), what, selection, total)
        self._jobs[job.number] = job
        while len(self._jobs) > _KEPT_JOBS:
            self._jobs.popitem(last=False)

        def run() -> None:
            try:
                work(job)
            except Exception as error:
                job.error = self.plan.redact(describe(error))
            finally:
                job.running = False

        threading.Thread(target=run, name=f"oncemq-{what}", daemon=True).start()
        return job

    def job(self, number: int) -> Job | None:
        """Return a job of this process, if it is known still."""
        return self._jobs.get(number)

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            if self._source is not None:
                self._source.close()
                self._source = None
        if self.plan.redis is not None:
            self.plan.redis.close()
        for engine in self.plan.engines:
            engine.dispose()


def _loader(app: "str | Path | Sequence[str | Path] | Loadable") -> Callable[[], LoadedApp]:
    if isinstance(app, str | Path):
        return lambda: load([Path(app)])
    if isinstance(app, Sequence):
        files = [Path(file) for file in app]
        return lambda: load(files)
    return app.load
