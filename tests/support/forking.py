"""Processes that start in milliseconds: one process imports what they need, starts no thread, and forks each of them on order.

A module that is to be such a process calls `serve`; a test orders from it by `Forks`. All of them end with the tests, also when the
tests are killed.
"""

import atexit
import ctypes
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Condition, Lock, Thread
from typing import Any, Self

from support.patience import PATIENCE

TESTS = Path(__file__).parents[1]
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""


class Child:
    """A forked process."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks = forks
        self.pid = pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._forks.ended.get(self.pid)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end; longer on a slow machine."""
        timeout *= PATIENCE
        with self._forks.changed:
            if not self._forks.changed.wait_for(lambda: self.pid in self._forks.ended, timeout):
                raise AssertionError(
                    f"process {self.pid} still runs after {timeout:.0f} s\n{self._forks.said()}"
                )
        return self._forks.ended[self.pid]

    def send(self, number: signal.Signals) -> bool:
        """Signal it, if it still runs."""
        if self.code is not None:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> int:
        """SIGKILL it."""
        self.send(signal.SIGKILL)
        return self.wait()

    def drain(self, timeout: float = 60.0) -> int:
        """SIGTERM it and wait for the ordered end."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)


class Forks:
    """Starts children and learns of their ends; use as a context manager, or close it.

    Args:
        module: the one that calls `serve`.
        log: file that collects what children print.
        environment: variables of the children.
    """

    def __init__(self, module: str, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self.changed = Condition()
        self._starting = Lock()
        self.ended: dict[int, int] = {}
        self._born: list[int] = []
        self._children: list[Child] = []
        # What came before is kept: a trial of a defect names the code that it has changed there.
        paths = os.pathsep.join(filter(None, (str(TESTS), environment.get("PYTHONPATH"))))
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=log.parent,
                env={**environment, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                bufsize=1,
            )
        self._ears = Thread(target=self._listen, daemon=True, name="forks")
        self._ears.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all children, and the process that forks them."""
        for child in self._children:
            child.send(signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30 * PATIENCE)
        self._ears.join(30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def fork(self, order: str) -> Child:
        """Start a child for an order, which is one line."""
        if self._process.stdin is None:
            raise AssertionError("nothing can be forked any more")
        with self._starting, self.changed:
            born = len(self._born)
            self._process.stdin.write(f"{order}\n")
            if not self.changed.wait_for(lambda: len(self._born) > born, 30 * PATIENCE):
                raise AssertionError(f"no child was born\n{self.said()}")
            child = Child(self, self._born[born])
        self._children.append(child)
        return child

    def said(self, most: int = 4000) -> str:
        """Return the end of what children have printed."""
        return self._log.read_text(errors="replace")[-most:]

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            word, pid, code = line.split()
            with self.changed:
                if word == "born":
                    # The system gives the number of an ended process to a new one.
                    self.ended.pop(int(pid), None)
                    self._born.append(int(pid))
                else:
                    self.ended[int(pid)] = int(code)
                self.changed.notify_all()


@cache
def shared_forks(module: str) -> Forks:
    """Return the one process of these tests that forks children of a module, which takes longer to import than most of them live."""
    folder = TemporaryDirectory(prefix="oncemq-forks-")
    atexit.register(folder.cleanup)
    forks = Forks(module, Path(folder.name, "children.log"), os.environ)
    atexit.register(forks.close)
    return forks


def serve(main: Callable[[str], int], modules: Iterable[str]) -> None:
    """Import the modules, then fork a process that runs `main` for each line of standard input; at its end, end all of them.

    Modules that are missing are left out: the environment of one driver has no others.
    """
    for name in modules:
        with suppress(ModuleNotFoundError):
            import_module(name)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    heard, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    living: set[int] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0, heard], [], [])
        if heard in ready:
            os.read(heard, 4096)
            _reap(living)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                living.add(_fork(main, line.decode(), libc))
    for pid in living:
        os.kill(pid, signal.SIGKILL)


def _fork(main: Callable[[str], int], order: str, libc: ctypes.CDLL | None) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid:
        _say("born", pid, 0)
        return pid
    _end_with(parent, libc)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The process that runs the tests may ignore this signal, for example under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    code = 1
    try:
        os.dup2(2, 1)
        code = main(order)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end_with(parent: int, libc: ctypes.CDLL | None) -> None:
    """Be killed when the parent ends, also by a SIGKILL of its whole group, to which a child in a session of its own does not belong."""
    if libc is None:
        return
    libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _reap(living: set[int]) -> None:
    while living:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        living.discard(pid)
        _say("ended", pid, os.waitstatus_to_exitcode(status))


def _say(*words: Any) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
