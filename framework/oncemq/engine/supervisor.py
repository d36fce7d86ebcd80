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
from queue import Empty, SimpleQueue
from types import FrameType

from oncemq.common.fork_server import ForkedProcess, ForkServer
from oncemq.engine.stop_times import StopTimes
from oncemq.engine.supervision.child import Child, ChildMain, Process, run_child, run_spawned
from oncemq.engine.supervision.recycling import Reason, RecycleRule
from oncemq.engine.supervision.replacing import READY_WITHIN, Replacement, Replacements, Step

EXIT_STOPPED_AT_ONCE = 130
"""A second signal came while draining."""

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_STEADY_AFTER = 30.0
_TICK = 0.5
_STARTS_SLOWER = 5
_SILENT_SHARE = 4


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
        replaced: another process has taken its place already, or it was to take one and has not begun: nothing is restarted.
    """

    index: int
    pid: int
    code: int
    ordered: bool
    silent: bool = False
    lost: bool = False
    replaced: bool = False


class Supervisor:
    """Keeps `count` worker processes running until stopped.

    A worker that ends with 0 has finished (`until_idle`) and is not started again. One that dies is started
    again: at once if it has applied something, else after a pause that grows while this worker keeps dying early.
    Workers are numbered from 0; one that is recycled has a successor with a number that is free, `count` at most.

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
        recycle: when a worker is replaced by a successor; None = never.
        on_replacement: called at each step of a replacement.
        ready_within: how long a successor may take to be ready; else its predecessor goes on.
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
        recycle: RecycleRule | None = None,
        on_replacement: Callable[[Replacement], None] = lambda _: None,
        ready_within: float = READY_WITHIN,
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
        self._children: dict[int, Child] = {}
        self._due: dict[int, float] = {}
        self._signals = 0
        self._stop_since: float | None = None
        self._pauses: dict[int, float] = {}
        self._reload = threading.Event()
        self._reloaded = False
        self._reloading: set[int] = set()
        self._orders: SimpleQueue[tuple[ChildMain, Callable[[bool], None]]] = SimpleQueue()
        self._next: ChildMain | None = None
        """Of a reload of which no process has become ready yet."""
        self._ordered: tuple[ChildMain, Callable[[bool], None]] | None = None
        """The reload that is under way, and who is told of its end."""
        self._replacements = Replacements(recycle, self._kill_after, on_replacement, ready_within)
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

    def replace(self, child: ChildMain, done: Callable[[bool], None] = lambda _: None) -> None:
        """Replace every worker by one that runs `child`, one after the other; from any thread.

        If the first of them does not become ready, none is replaced.

        Args:
            child: runs in each worker process from now on.
            done: called, in the supervisor's thread, with True when every worker runs it, and with False when it was given up.
        """
        self._orders.put((child, done))
        self._ring()

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signals += 1
        self._ring()

    def _ring(self) -> None:
        with suppress(OSError):
            os.write(self._rope.fileno(), b".")

    def _start(self, index: int, *, first: bool = False, main: ChildMain | None = None) -> Child:
        mine, its = self._spawn.Pipe(duplex=False)
        main = main or self._child
        try:
            process = self._forked(main, index, its) or self._spawned(main, index, its)
        finally:
            its.close()
        limits = self._replacements.limits()
        made = Child(index, process, mine, time.monotonic(), first, limits, main=main)
        self._children[index] = made
        return made

    def _start_successor(self, _reason: Reason) -> Child:
        index = next(n for n in range(self._count + 1) if n not in self._children and n not in self._due)
        return self._start(index, main=self._next)

    def _forked(self, main: ChildMain, index: int, word: Connection) -> Process | None:
        if self._forks is None:
            return None
        process = self._forks.fork(partial(run_child, main, index, self._kill_after), word)
        if process is None:
            # One that only does not answer would hold up every further start.
            self._forks.close()
            self._forks = None
        return process

    def _spawned(self, main: ChildMain, index: int, word: Connection) -> Process:
        process = self._spawn.Process(
            target=run_spawned, args=(main, index, self._kill_after, word), name=f"oncemq-{index}"
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
            self._replace()
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

    def _replace(self) -> None:
        """Go on with replacements: those that an operator wants, and those of workers that have reached a limit."""
        if self._stop_since is not None or self._reloading:
            return
        with suppress(Empty):
            order = self._orders.get_nowait()
            self._tell_end(succeeded=False)
            self._ordered, self._next = order, order[0]
            self._replacements.order(self._children.values())
        # One that died meanwhile, and was started again, must not go on with what was replaced.
        wanted = self._next or self._child
        self._replacements.also(child for child in self._children.values() if child.main is not wanted)
        took_over = self._replacements.look(self._children, self._start_successor) is Step.TOOK_OVER
        promoted = any(child.promoted and child.ready is not None for child in self._children.values())
        # Without a worker that runs, none has to go on while a successor starts.
        if self._next is not None and (took_over or promoted or not self._children):
            self._child, self._next = self._next, None
            self._due = dict.fromkeys(self._due, 0.0)
        if self._next is None and self._ordered is not None:
            succeeded = self._ordered[0] is self._child
            if not succeeded or all(child.main is self._child for child in self._children.values()):
                self._tell_end(succeeded=succeeded)

    def _tell_end(self, *, succeeded: bool) -> None:
        """Tell that the reload that is under way has ended."""
        if self._ordered is not None:
            _, done = self._ordered
            self._ordered = None
            done(succeeded)

    def _ended(self, child: Child, code: int) -> int:
        """Handle the end of a worker; returns the exit code it means for the app, 0 for none."""
        child.hear()
        pid, lost = child.process.pid or 0, _is_lost(child.process)
        step = self._replacements.ended(child) if self._stop_since is None else None
        left = child.leaving is not None
        asked = left or self._stop_since is not None
        # What was asked to end before it had begun has run no message.
        if code not in self._finished and not (asked and code == -signal.SIGTERM):
            replaced = left or step is Step.FAILED
            self._on_death(Death(child.index, pid, code, child.killed or lost, child.frozen, lost, replaced))
        if self._stop_since is not None:
            return self._ended_while_stopping(child, code)
        young = child.promoted and child.ready is None
        if young or step is Step.FAILED:
            self._next = None
        if young:
            self._replacements.give_up()
            self._start_later(child)
        return 0 if young or step is not None else self._ended_alone(child, code)

    def _ended_alone(self, child: Child, code: int) -> int:
        """Start another process in its place, unless it has finished or nothing would cure it."""
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

    def _ended_while_stopping(self, child: Child, code: int) -> int:
        if code == -signal.SIGTERM:
            return 0  # it had not begun
        if child.killed and self._signals > 1:
            return EXIT_STOPPED_AT_ONCE
        return 1 if code < 0 else code

    def _start_later(self, child: Child) -> None:
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
            self._replacements.order(())
            self._reloading = {index for index, child in self._children.items() if child.leaving is None}
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


def _is_lost(process: Process) -> bool:
    return isinstance(process, ForkedProcess) and process.lost
