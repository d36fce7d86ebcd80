"""Keeps a program from being process 1 of a container: that one only passes signals on and reaps; the program is its child.

The kernel drops a signal to process 1 that has no handler, so a SIGTERM during the imports would be lost; and nothing else
reaps the processes that handlers leave behind.
"""

import os
import signal
import sys
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

_SI_KERNEL = 0x80
"""A terminal sends its signals to the whole process group: the child has them already."""

_FORWARDED = frozenset(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")
    if hasattr(signal, name)
)


def leave_process_one() -> bool:
    """Return in a child process if this is process 1; the parent passes signals on, reaps, and ends as the child ends.

    Returns False, in process 1 itself, if it has threads, which its child would not have.
    """
    if os.getpid() != 1:
        return True
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return False
    for stream in (sys.stdout, sys.stderr):
        # What is still in a buffer would be written twice.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    awaited = _FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True
    os._exit(_wait(child, awaited))


def _wait(child: int, awaited: AbstractSet[int]) -> int:
    """Pass signals on and reap every process that ends, until the child has ended; returns its exit code."""
    while True:
        received = signal.sigwaitinfo(awaited)
        if received.si_signo == signal.SIGCHLD:
            code = _reap(child)
            if code is not None:
                return code
        elif received.si_code != _SI_KERNEL:
            os.kill(child, received.si_signo)


def _reap(child: int) -> int | None:
    """Reap all that have ended; returns the child's exit code, 128 and more for a signal, or None while it runs."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            return None
