"""Forks processes on order from a process that was itself forked early: before this program had a thread or imported anything of its user's.

A spawned worker imports the whole program again, which takes more than a second of processor time; a forked one has it. The
server holds no connection and runs nothing of the user's, so the processes are as clean as spawned ones.
"""

import atexit
import gc
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

_ANSWERS_WITHIN = 60.0
"""Seconds; it may still import what it was told to."""
_TELLS_WITHIN = 10.0
"""Seconds to reap a process and to tell its exit code; only a frozen server takes longer."""
_LARGEST_ORDER = 1 << 17
_IMPORT, _FORK = b"i", b"f"
_BLOCKED = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
"""Signals that a terminal or a service manager sends to all processes of a program: only its owner ends the server."""

ForkedMain = Callable[[Connection, "Ancestors"], int]
"""Runs in the forked process, which ends with the exit code it returns, and unblocks SIGINT there. Must be picklable."""


class Ancestors:
    """Fork server and owner of a forked process, as this process sees them.

    Args:
        handles: a pidfd of each.
    """

    def __init__(self, handles: Sequence[int]) -> None:
        self._handles = handles

    def is_alive(self) -> bool:
        """Return whether both still run."""
        return not wait(self._handles, 0)

    def join(self, timeout: float) -> None:
        """Wait until one of them has ended, or so many seconds have passed."""
        wait(self._handles, timeout)


class ForkedProcess:
    """A process that a fork server has forked, as its owner sees it; like `multiprocessing.Process`."""

    def __init__(self, pid: int, handle: int, status: Connection) -> None:
        self.pid = pid
        self.exitcode: int | None = None
        self.lost = False
        """The fork server has ended, so nothing tells the exit code; the process ends by itself."""
        self._handle = handle
        self._status = status

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when `is_alive()` may say something else than before."""
        return self._handle if self.lost else self._status.fileno()

    def is_alive(self) -> bool:
        """Return whether it runs."""
        self._hear(0)
        return self.exitcode is None

    def join(self) -> None:
        """Wait for its end."""
        while self.exitcode is None:
            self._hear(None)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def close(self) -> None:
        """Close its descriptors."""
        self._status.close()
        os.close(self._handle)

    def _send(self, number: signal.Signals) -> None:
        # By its handle: the server reaps it before this process knows, and its process id may be another one's by then.
        with suppress(OSError):
            signal.pidfd_send_signal(self._handle, number)

    def _hear(self, timeout: float | None) -> None:
        if self.exitcode is not None:
            return
        if not self.lost and wait([self._status, self._handle], timeout):
            try:
                if self._status.poll(_TELLS_WITHIN):
                    self.exitcode = self._status.recv()
                else:
                    self.lost = True
            except (EOFError, OSError):
                self.lost = True
        if self.lost and wait([self._handle], timeout):
            self.exitcode = -signal.SIGKILL


class ForkServer:
    """The owner's end of a fork server; made by `started`."""

    def __init__(self, pid: int, orders: socket.socket) -> None:
        self.pid = pid
        self._orders = orders
        self._closed = False

    @classmethod
    def started(cls) -> "ForkServer | None":
        """Fork the server from this process; None where the system has no pidfd, or this process has other threads."""
        if not _is_possible():
            return None
        _flush()  # what is still in a buffer would be written twice
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        owner = os.pidfd_open(os.getpid())
        # Blocked, not ignored: what it forks gets a signal that comes before it has a handler.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        pid = os.fork()
        if pid == 0:
            mine.close()
            _forget_handlers()
            _Server(its, owner, before).serve()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()
        os.close(owner)
        return cls(pid, mine)

    def import_modules(self, names: Iterable[str]) -> None:
        """Let it import these modules, so that no forked process has to; what cannot be imported is left to them."""
        with suppress(OSError):
            self._orders.send(_IMPORT + pickle.dumps(list(names)))

    def fork(self, main: ForkedMain, word: Connection) -> ForkedProcess | None:
        """Start a process that runs `main(word, ancestors)`; None if the server has ended, or cannot fork."""
        mine, its = Pipe(duplex=False)
        pid = None
        try:
            socket.send_fds(self._orders, [_FORK + pickle.dumps(main)], [word.fileno(), its.fileno()])
            its.close()
            if mine.poll(_ANSWERS_WITHIN):
                pid = mine.recv()
        except (EOFError, OSError):
            pass
        its.close()
        if pid is None:
            mine.close()
            return None
        return ForkedProcess(pid, _handle_of(pid), mine)

    def close(self) -> None:
        """Kill the server; what it has forked ends by itself."""
        if self._closed:
            return
        self._closed = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._orders.close()


@dataclass(frozen=True, slots=True)
class _Forked:
    """A process that the server has forked."""

    pid: int
    status: Connection


class _Server:
    """The server's side.

    Args:
        orders: where they come from; at its end the owner has ended.
        owner: its pidfd.
        signals: the mask of blocked signals that forked processes start with.
    """

    def __init__(self, orders: socket.socket, owner: int, signals: Iterable[int]) -> None:
        self._orders = orders
        self._owner = owner
        self._signals = frozenset(signals)
        self._self = os.pidfd_open(os.getpid())
        self._forked: dict[int, _Forked] = {}

    def serve(self) -> NoReturn:
        """Fork, reap and report until the owner ends."""
        try:
            while True:
                ready = select.poll()
                for descriptor in (self._orders.fileno(), *self._forked):
                    ready.register(descriptor, select.POLLIN)
                for descriptor, _ in ready.poll():
                    if descriptor in self._forked:
                        self._reap(descriptor)
                    elif not self._obey():
                        os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def _obey(self) -> bool:
        order, descriptors, _, _ = socket.recv_fds(self._orders, _LARGEST_ORDER, 2)
        if order[:1] == _IMPORT:
            for name in pickle.loads(order[1:]):  # noqa: S301 - from the owner
                with suppress(Exception):
                    import_module(name)
            # The collector writes to every object that it looks at, and each forked process would copy their pages.
            gc.collect()
            gc.freeze()
        elif order:
            word, status = (Connection(descriptor) for descriptor in descriptors)
            self._fork(order[1:], word, status)
            word.close()
        return bool(order)

    def _fork(self, main: bytes, word: Connection, status: Connection) -> None:
        for connection in (word, status):
            os.set_inheritable(connection.fileno(), False)
        try:
            pid = os.fork() if _threads() == 1 else None
        except OSError:
            pid = None
        if pid == 0:
            self._leave_to(main, word, status)
        status.send(pid)
        if pid is None:
            status.close()
        else:
            self._forked[os.pidfd_open(pid)] = _Forked(pid, status)

    def _leave_to(self, main: bytes, word: Connection, status: Connection) -> NoReturn:
        """Run `main` in the forked process, and end as the interpreter ends one that it has started."""
        code = 1
        try:
            self._orders.close()
            status.close()
            for handle, forked in self._forked.items():
                os.close(handle)
                forked.status.close()
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._signals | {signal.SIGINT})
            try:
                code = pickle.loads(main)(word, Ancestors([self._owner, self._self]))  # noqa: S301 - from the owner
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        except BaseException:  # nothing may go on as a second server
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)

    def _reap(self, handle: int) -> None:
        forked = self._forked.pop(handle)
        os.close(handle)
        _, how = os.waitpid(forked.pid, 0)
        with suppress(OSError):
            forked.status.send(os.waitstatus_to_exitcode(how))
        forked.status.close()


def _is_possible() -> bool:
    """Return whether this process may fork, and can watch processes that are not its children."""
    if sys.platform != "linux" or _threads() > 1:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # an old kernel, or a sandbox that forbids it
        return False
    return True


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _handle_of(pid: int) -> int:
    """Return a pidfd; or what is readable as that of a process that has ended, if it has been reaped already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return os.open(os.devnull, os.O_RDONLY)


def _forget_handlers() -> None:
    """Reset what the owner does with signals; what it was told to ignore, as by `nohup`, stays ignored."""
    signal.set_wakeup_fd(-1)
    for number in _BLOCKED:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
