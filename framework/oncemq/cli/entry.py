"""Starts the program: at once, or below a minimal init process where it would be process 1 of a container.

The kernel drops a signal to process 1 that has no handler, so a SIGTERM during the imports would be lost; and nothing reaps
the processes that handlers leave behind. So process 1 only passes signals on and reaps; the program is its child.
"""

import os
import signal
import sys
from collections.abc import Set as AbstractSet

_SI_KERNEL = 0x80
"""A terminal sends its signals to the whole process group: the child has them already."""

_FORWARDED = frozenset(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")
    if hasattr(signal, name)
)
_WINDOWS = "win32"
_UNSUPPORTED = (
    "oncemq runs on Linux and macOS; on Windows its worker processes lack file locks and POSIX signals: "
    "use WSL 2 or a container"
)


def main() -> None:
    """Run the command line; never returns."""
    if sys.platform == _WINDOWS:
        sys.exit(_UNSUPPORTED)
    if os.getpid() == 1:
        _become_init()
    from oncemq.cli.main import main as run  # noqa: PLC0415 - process 1 needs none of it

    run()


def _become_init() -> None:
    """Return in a child; stay in the parent until that child has ended, and exit as it did."""
    awaited = _FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    sys.exit(_wait(child, awaited))


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
