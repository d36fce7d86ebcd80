"""Worker processes: spawned, watched, restarted when they die, and stopped in order."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType

EXIT_STOPPED_AT_ONCE = 130
"""A second signal came while draining."""

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_STEADY_AFTER = 30.0
_TICK = 0.5

ChildMain = Callable[[int], int]
"""Runs one worker process; called with its index, returns its exit code. Must be picklable."""


@dataclass(slots=True)
class _Child:
    index: int
    process: BaseProcess
    started: float


class Supervisor:
    """Keeps `count` worker processes running until told to stop.

    A worker that ends with 0 has finished (`until_idle`) and is not started again; one that ends with an
    error before it ever ran for a while ends the whole app if it was a start-up error.

    Args:
        child: what a worker process runs; spawned, never forked.
        count: how many.
        grace: how long a drain may take before a worker is killed.
        on_death: told (index, exit code) after a worker died, before it is started again.
        fatal: exit codes that starting again would not mend, such as a wrong configuration.
    """

    def __init__(
        self,
        child: ChildMain,
        count: int,
        grace: timedelta,
        on_death: Callable[[int, int], None],
        fatal: frozenset[int],
    ) -> None:
        self._child = child
        self._count = count
        self._grace = grace.total_seconds()
        self._on_death = on_death
        self._fatal = fatal
        self._spawn = multiprocessing.get_context("spawn")
        self._children: dict[int, _Child] = {}
        self._signals = 0
        self._stop_since: float | None = None
        self._pause = _FIRST_PAUSE
        self._reload = threading.Event()
        self._reloading: set[int] = set()

    def run(self) -> int:
        """Return when every worker has ended; 0 when all ended well."""
        previous = {
            number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            for index in range(self._count):
                self._start(index)
            return self._watch()
        finally:
            for child in self._children.values():
                child.process.kill()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def reload(self) -> None:
        """Have every worker drained and started again; from any thread."""
        self._reload.set()

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signals += 1

    def _start(self, index: int) -> None:
        process = self._spawn.Process(target=_run_child, args=(self._child, index), name=f"oncemq-{index}")
        process.start()
        self._children[index] = _Child(index, process, time.monotonic())

    def _watch(self) -> int:
        worst = 0
        while self._children:
            wait([child.process.sentinel for child in self._children.values()], timeout=_TICK)
            self._obey_signals()
            for child in [child for child in self._children.values() if not child.process.is_alive()]:
                child.process.join()
                del self._children[child.index]
                code = child.process.exitcode or 0
                worst = worst or self._ended(child, code)
        return worst

    def _ended(self, child: _Child, code: int) -> int:
        """Deal with the end of a worker; returns the exit code it means for the app, 0 for none."""
        if code != 0:
            self._on_death(child.index, code)
        if self._stop_since is not None:
            return abs(code)
        if child.index in self._reloading:
            self._reloading.discard(child.index)
            self._start_again(child, paused=False)
            return 0
        if code == 0:
            return 0
        if code in self._fatal:
            self._ask_all()
            return code
        self._start_again(child, paused=True)
        return 0

    def _start_again(self, child: _Child, *, paused: bool) -> None:
        if time.monotonic() - child.started > _STEADY_AFTER:
            self._pause = _FIRST_PAUSE
        if paused:
            time.sleep(self._pause)
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        self._start(child.index)

    def _obey_signals(self) -> None:
        if self._reload.is_set() and self._stop_since is None:
            self._reload.clear()
            self._reloading = set(self._children)
            for child in self._children.values():
                _ask(child.process, signal.SIGTERM)
        if self._signals == 0:
            return
        if self._stop_since is None:
            self._ask_all()
        elif self._signals > 1 or time.monotonic() - self._stop_since > self._grace + 5:
            for child in self._children.values():
                child.process.kill()

    def _ask_all(self) -> None:
        self._stop_since = time.monotonic()
        for child in self._children.values():
            _ask(child.process, signal.SIGTERM)


def _ask(process: BaseProcess, number: int) -> None:
    if process.pid is not None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _run_child(child: ChildMain, index: int) -> None:
    # A terminal sends Ctrl-C to the whole group; only the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    raise SystemExit(child(index))


def _die_with_parent() -> None:
    """End this process when its supervisor is gone: nobody would restart it or read its recorder."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, name="oncemq-parent", daemon=True).start()
