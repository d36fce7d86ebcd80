"""Supervises worker processes: started, monitored, restarted when they die, and stopped in order."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Protocol

from oncemq.common.fork_server import ForkedProcess, ForkServer
from oncemq.engine.stop_times import StopTimes

EXIT_STOPPED_AT_ONCE = 130
"""A second signal came while draining."""

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_STEADY_AFTER = 30.0
_TICK = 0.5
_BEAT = 0.5
_STARTS_SLOWER = 5
_SILENT_SHARE = 4
_EXIT_WITHIN = 3.0
_FAILED = 1

_APPLIED = b"a"
_ALIVE = b"b"

ChildMain = Callable[[int, Callable[[], None]], int]
"""Runs one worker process; called with its index and a callback for when it has applied something, returns its
exit code. Must be picklable."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker process with an error.

    Args:
        index: the worker's number.
        pid: its process id.
        code: its exit code; negative for a signal.
        ordered: the supervisor or an operator stopped it, so no message is at fault.
        silent: it was killed because it no longer responded.
        lost: the process that had forked it ended first, so it drained, and nothing tells its exit code.
    """

    index: int
    pid: int
    code: int
    ordered: bool
    silent: bool = False
    lost: bool = False


class _Process(Protocol):
    """A worker process, spawned or forked."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exitcode(self) -> int | None: ...
    @property
    def sentinel(self) -> int: ...
    def is_alive(self) -> bool: ...
    def join(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class _Ancestors(Protocol):
    """The processes without which nothing would start a successor of this one."""

    def is_alive(self) -> bool: ...
    def join(self, timeout: float, /) -> None: ...


@dataclass(slots=True)
class _Child:
    """A worker process; `silence` is the time in seconds that this supervisor has watched it without hearing from it."""

    index: int
    process: _Process
    word: Connection
    started: float
    first: bool
    killed: bool = False
    frozen: bool = False
    useful: bool = False
    silence: float = 0.0
    heard: bool = False
    reported: bool = False

    def hear(self) -> None:
        """Read what it has sent since the last time."""
        with suppress(EOFError, OSError):
            while self.word.poll():
                self.useful |= self.word.recv_bytes() == _APPLIED
                self.silence = 0.0
                self.heard = True

    def is_stopped(self) -> bool:
        """Return whether a signal or a debugger has stopped it."""
        with suppress(OSError):
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] in {"T", "t"}
        return False


class Supervisor:
    """Keeps `count` worker processes running until stopped.

    A worker that ends with 0 has finished (`until_idle`) and is not started again. One that dies is started
    again: at once if it has applied something, else after a pause that grows while this worker keeps dying early.

    Args:
        child: runs in each worker process, which is spawned or comes from `forks`; never forked from this one.
        count: the number of workers.
        grace: how long a stop may take in all; a worker that still runs shortly before its end is killed.
        on_death: called after a worker died, before it is started again.
        fatal: exit codes that a restart would not cure, such as a wrong configuration; they end the app.
        fatal_first: exit codes that end the app when a worker's very first process ends with them, such as a
            server that does not answer: later this is only an outage.
        finished: other exit codes besides 0 of a worker that has finished; that of the last one is the app's, since it
            has seen the remaining work of the others.
        on_silence: called with a worker's index, process id and the seconds for which it has not responded, once.
        frozen_after: a worker that has not responded for so long is killed, and started again; five times as long while
            it starts.
        forks: forks the worker processes; None = they are spawned, as they are when it has ended.
    """

    def __init__(
        self,
        child: ChildMain,
        count: int,
        grace: timedelta,
        on_death: Callable[[Death], None],
        fatal: frozenset[int],
        fatal_first: frozenset[int] = frozenset(),
        finished: frozenset[int] = frozenset(),
        on_silence: Callable[[int, int, float], None] = lambda _index, _pid, _seconds: None,
        frozen_after: timedelta = timedelta(seconds=60),
        forks: ForkServer | None = None,
    ) -> None:
        self._child = child
        self._count = count
        self._kill_after = StopTimes.of(grace).closed.total_seconds()
        self._on_death = on_death
        self._fatal = fatal
        self._fatal_first = fatal_first
        self._finished = finished | {0}
        self._last_finished = 0
        self._on_silence = on_silence
        self._frozen_after = frozen_after.total_seconds()
        self._looked = time.monotonic()
        self._spawn = multiprocessing.get_context("spawn")
        self._forks = forks
        self._children: dict[int, _Child] = {}
        self._due: dict[int, float] = {}
        self._signals = 0
        self._stop_since: float | None = None
        self._pauses: dict[int, float] = {}
        self._reload = threading.Event()
        self._reloaded = False
        self._reloading: set[int] = set()
        # Wakes the loop from signal handlers and other threads: neither of them may take a lock.
        self._bell, self._rope = self._spawn.Pipe(duplex=False)
        os.set_blocking(self._rope.fileno(), False)

    def run(self) -> int:
        """Return when every worker has ended; 0 when all ended well. In the main thread, for its signals."""
        previous = {
            number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            for index in range(self._count):
                self._start(index, first=True)
            return self._watch()
        finally:
            for child in self._children.values():
                child.process.kill()
                child.process.join()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def reload(self) -> None:
        """Drain and restart every worker; from any thread."""
        self._reload.set()
        self._ring()

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signals += 1
        self._ring()

    def _ring(self) -> None:
        with suppress(OSError):
            os.write(self._rope.fileno(), b".")

    def _start(self, index: int, *, first: bool = False) -> None:
        mine, its = self._spawn.Pipe(duplex=False)
        try:
            process = self._forked(index, its) or self._spawned(index, its)
        finally:
            its.close()
        self._children[index] = _Child(index, process, mine, time.monotonic(), first)

    def _forked(self, index: int, word: Connection) -> _Process | None:
        if self._forks is None:
            return None
        process = self._forks.fork(partial(_run_child, self._child, index, self._kill_after), word)
        if process is None:
            # One that only does not answer would hold up every further start.
            self._forks.close()
            self._forks = None
        return process

    def _spawned(self, index: int, word: Connection) -> _Process:
        process = self._spawn.Process(
            target=_run_spawned, args=(self._child, index, self._kill_after, word), name=f"oncemq-{index}"
        )
        # A Ctrl-C goes to the whole group; it must not reach a child that is still importing.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return process

    def _watch(self) -> int:
        worst = 0
        while self._children or self._due:
            self._wait()
            self._obey_signals()
            self._start_due()
            self._listen()
            for child in [child for child in self._children.values() if not child.process.is_alive()]:
                child.process.join()
                del self._children[child.index]
                worst = worst or self._ended(child, child.process.exitcode or 0)
                child.process.close()
                child.word.close()
        return worst or self._last_finished

    def _wait(self) -> None:
        """Wait until a worker ends, a signal comes, or a worker is to be started."""
        now = time.monotonic()
        timeout = min([_TICK, *(max(0.0, at - now) for at in self._due.values())])
        sentinels = [child.process.sentinel for child in self._children.values()]
        if self._bell.fileno() in {
            ready if isinstance(ready, int) else ready.fileno()
            for ready in wait([*sentinels, self._bell.fileno()], timeout=timeout)
        }:
            os.read(self._bell.fileno(), 4096)

    def _listen(self) -> None:
        """Hear the workers, and kill those that have not responded for too long.

        Time in which this process itself was frozen, with them, counts as one tick.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _TICK), now
        for child in self._children.values():
            child.silence += passed
            child.hear()
            pid = child.process.pid or 0
            # On a machine with little time for it, the imports before its first word may take minutes.
            longest = self._frozen_after * (1 if child.heard else _STARTS_SLOWER)
            if child.silence > longest / _SILENT_SHARE and not child.reported:
                child.reported = True
                self._on_silence(child.index, pid, child.silence)
            if child.silence > longest and not child.frozen:
                child.frozen = True
                # Else the message that was running is at fault: it may hold the interpreter's lock for ever.
                child.killed = child.killed or child.is_stopped()
                child.process.kill()

    def _ended(self, child: _Child, code: int) -> int:
        """Handle the end of a worker; returns the exit code it means for the app, 0 for none."""
        child.hear()
        pid, lost = child.process.pid or 0, _is_lost(child.process)
        if code not in self._finished:
            self._on_death(
                Death(child.index, pid, code, child.killed or lost, silent=child.frozen, lost=lost)
            )
        if self._stop_since is not None:
            return self._ended_while_stopping(child, code)
        if child.index in self._reloading:
            self._reloading.discard(child.index)
            self._start(child.index)
            return 0
        if code in self._finished:
            self._last_finished = code
            return 0
        if code in self._fatal and self._reloaded:
            self._due[child.index] = float("inf")  # until the user has corrected the files
            return 0
        if code in self._fatal or (child.first and code in self._fatal_first):
            self._ask_all()
            return code
        self._start_later(child)
        return 0

    def _ended_while_stopping(self, child: _Child, code: int) -> int:
        if code == -signal.SIGTERM:
            return 0  # it had not begun
        if child.killed and self._signals > 1:
            return EXIT_STOPPED_AT_ONCE
        return 1 if code < 0 else code

    def _start_later(self, child: _Child) -> None:
        now = time.monotonic()
        if child.useful or now - child.started > _STEADY_AFTER:
            self._pauses.pop(child.index, None)
            self._due[child.index] = now
            return
        pause = self._pauses.get(child.index, _FIRST_PAUSE)
        self._due[child.index] = now + pause
        self._pauses[child.index] = min(_LONGEST_PAUSE, 2 * pause)

    def _start_due(self) -> None:
        for index in [index for index, at in self._due.items() if at <= time.monotonic()]:
            del self._due[index]
            self._start(index)

    def _obey_signals(self) -> None:
        if self._reload.is_set() and self._stop_since is None:
            self._reload.clear()
            self._reloaded = True
            self._reloading = set(self._children)
            self._due = dict.fromkeys(self._due, 0.0)
            for child in self._children.values():
                child.process.terminate()
        if self._stop_since is None:
            if self._signals:
                self._ask_all()
        elif self._signals > 1 or time.monotonic() - self._stop_since > self._kill_after:
            for child in self._children.values():
                child.killed = True
                child.process.kill()

    def _ask_all(self) -> None:
        self._stop_since = time.monotonic()
        self._due.clear()
        for child in self._children.values():
            child.process.terminate()


def _is_lost(process: _Process) -> bool:
    return isinstance(process, ForkedProcess) and process.lost


def _run_spawned(child: ChildMain, index: int, kill_after: float, word: Connection) -> None:
    raise SystemExit(_run_child(child, index, kill_after, word, multiprocessing.parent_process()))


def _run_child(
    child: ChildMain, index: int, kill_after: float, word: Connection, ancestors: _Ancestors | None
) -> int:
    # Only the supervisor decides how to react to a Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.register_at_fork(after_in_child=_obey_signals_as_usual)
    os.set_blocking(word.fileno(), False)
    _die_with(ancestors, word, kill_after)
    code = child(index, lambda: _tell(word, _APPLIED))
    _leave_within(_EXIT_WITHIN, code)
    return code


def _tell(word: Connection, what: bytes) -> None:
    with suppress(OSError):  # a supervisor that is frozen or gone reads nothing
        word.send_bytes(what)


def _obey_signals_as_usual() -> None:
    """Let a process that a handler forks end by a signal: it has inherited what the worker does with them."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _die_with(ancestors: _Ancestors | None, word: Connection, kill_after: float) -> None:
    """Tell the supervisor that this process is alive; drain when it is gone: nothing would start a successor.

    The supervisor would have killed it after `kill_after` seconds, so it ends then by itself.
    """

    def look() -> None:
        while ancestors is not None and ancestors.is_alive():
            _tell(word, _ALIVE)
            ancestors.join(_BEAT)
        os.kill(os.getpid(), signal.SIGTERM)
        _leave_within(kill_after, _FAILED)

    threading.Thread(target=look, name="oncemq-parent", daemon=True).start()


def _leave_within(seconds: float, code: int) -> None:
    """End this process after so many seconds although something, such as a process that a handler forked, holds its exit."""

    def leave() -> None:
        time.sleep(seconds)
        os._exit(code)

    threading.Thread(target=leave, name="oncemq-exit", daemon=True).start()
