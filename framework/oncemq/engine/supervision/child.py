"""A worker process: what its supervisor knows of it, and what it tells its supervisor."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from oncemq.common.memory import resident_bytes
from oncemq.engine.supervision.recycling import Limits

_BEAT = 0.5
_EXIT_WITHIN = 3.0
_FAILED = 1

_APPLIED = b"a"
_ALIVE = b"b"
_READY = b"r"


class Process(Protocol):
    """A worker process, spawned or forked."""

    @property
    def pid(self) -> int | None:
        """Its process id; None before it was started."""

    @property
    def exitcode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when it has ended."""

    def is_alive(self) -> bool:
        """Return whether it runs."""

    def join(self) -> None:
        """Wait for its end."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def close(self) -> None:
        """Close its descriptors."""


class _Ancestors(Protocol):
    """The processes without which nothing would start a successor of this one."""

    def is_alive(self) -> bool: ...
    def join(self, timeout: float, /) -> None: ...


@dataclass(slots=True, eq=False)
class Child:
    """A worker process, as its supervisor sees it.

    Args:
        index: its number.
        process: the process.
        word: where it is heard.
        started: monotonic seconds.
        first: the first process with its number.
        limits: after which it is replaced; None = none.
        killed: it was killed by order, so no message is at fault.
        frozen: it was killed because it no longer responded.
        useful: it has applied something.
        silence: the seconds that this supervisor has watched it without hearing from it.
        heard: it has said something.
        reported: its silence has been reported.
        ready: the monotonic second when it was first ready; None before.
        messages: that it has worked on, by its last word.
        memory: its bytes, by its last word.
        leaving: the monotonic second when it was told to drain because another one takes its place; None before.
        promoted: it was to replace a process that died meanwhile.
        judged: its memory at the moment when it was ready is known.
        main: what runs in it.
    """

    index: int
    process: Process
    word: Connection
    started: float
    first: bool
    limits: Limits | None = None
    killed: bool = False
    frozen: bool = False
    useful: bool = False
    silence: float = 0.0
    heard: bool = False
    reported: bool = False
    ready: float | None = None
    messages: int = 0
    memory: int = 0
    leaving: float | None = None
    promoted: bool = False
    judged: bool = False
    main: "ChildMain | None" = None

    def hear(self) -> None:
        """Read what it has sent since the last time."""
        with suppress(EOFError, OSError):
            while self.word.poll():
                self._understand(self.word.recv_bytes())
                self.silence = 0.0
                self.heard = True

    def _understand(self, said: bytes) -> None:
        self.useful |= said == _APPLIED
        if said == _READY and self.ready is None:
            self.ready = time.monotonic()
        if said[:1] == _ALIVE:
            with suppress(ValueError):
                self.messages, self.memory = map(int, said[1:].split())

    def leave(self) -> None:
        """Ask it to drain; nothing is started in its place."""
        self.leaving = time.monotonic()
        self.process.terminate()

    def kill_by_order(self) -> None:
        """Kill it; the messages that it runs are not at fault."""
        self.killed = True
        self.process.kill()

    def is_stopped(self) -> bool:
        """Return whether a signal or a debugger has stopped it."""
        with suppress(OSError):
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] in {"T", "t"}
        return False


class Reports:
    """What a worker process tells its supervisor.

    Args:
        word: where the supervisor listens.

    """

    def __init__(self, word: Connection) -> None:
        self._word = word
        self._is_ready: Callable[[], bool] | None = None
        self._messages = 0

    def count(self, messages: int) -> None:
        """Count messages that this process has worked on."""
        self._messages += messages

    def applied(self) -> None:
        """Tell that something has been applied."""
        self._tell(_APPLIED)

    def watch(self, is_ready: Callable[[], bool]) -> None:
        """Tell it when every consumer is ready for the first time.

        Args:
            is_ready: returns whether they are; asked twice a second.
        """
        self._is_ready = is_ready

    def beat(self) -> None:
        """Tell that this process is alive, how much it has done, and its memory; and once that it is ready."""
        self._tell(b"%b%d %d" % (_ALIVE, self._messages, resident_bytes()))
        ready = False
        with suppress(Exception):  # the supervisor must hear of this process whatever a state raises
            ready = self._is_ready is not None and self._is_ready()
        if ready:
            self._is_ready = None
            self._tell(_READY)

    def _tell(self, what: bytes) -> None:
        with suppress(OSError):  # a supervisor that is frozen or gone reads nothing
            self._word.send_bytes(what)


ChildMain = Callable[[int, Reports], int]
"""Runs one worker process; called with its index and what tells its supervisor of it, returns its exit code.
Must be picklable."""


def run_spawned(child: ChildMain, index: int, kill_after: float, word: Connection) -> None:
    """Run a spawned worker process, and end it with its exit code."""
    raise SystemExit(run_child(child, index, kill_after, word, parent_process()))


def run_child(
    child: ChildMain, index: int, kill_after: float, word: Connection, ancestors: _Ancestors | None
) -> int:
    """Run a worker process; returns its exit code.

    Args:
        child: what runs in it.
        index: its number.
        kill_after: seconds after which its supervisor would kill it while it drains.
        word: where the supervisor listens.
        ancestors: when one of them has ended, it drains.
    """
    # Only the supervisor decides how to react to a Ctrl-C, and to a SIGHUP.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.register_at_fork(after_in_child=_obey_signals_as_usual)
    os.set_blocking(word.fileno(), False)
    reports = Reports(word)
    _die_with(ancestors, reports, kill_after)
    code = child(index, reports)
    _leave_within(_EXIT_WITHIN, code)
    return code


def _obey_signals_as_usual() -> None:
    """Let a process that a handler forks end by a signal: it has inherited what the worker does with them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _die_with(ancestors: _Ancestors | None, reports: Reports, kill_after: float) -> None:
    """Tell the supervisor that this process is alive; drain when it is gone: nothing would start a successor.

    The supervisor would have killed it after `kill_after` seconds, so it ends then by itself.
    """

    def look() -> None:
        while ancestors is not None and ancestors.is_alive():
            reports.beat()
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
