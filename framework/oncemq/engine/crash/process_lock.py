"""Locks that end with a process: they show whether a process that left flight recorders is alive.

A process id does not: a container starts with the same id every time, and two containers that share
a folder cannot see each other's processes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4
from weakref import ref

from oncemq.common.posix import fcntl
from oncemq.common.private_files import open_private, state_folder

_SUFFIX = ".alive"


class ProcessLock:
    """Shows that this process is alive: a locked file, whose lock ends with the process in any case.

    Attributes:
        name: the name of this process, unique also among earlier processes.
    """

    def __init__(self, state: Path) -> None:
        state_folder(state)
        self.name = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._path = _path(state, self.name)
        # Locked before it has its name: no process may see it unlocked.
        fresh = self._path.with_suffix(".new")
        self._file = open_private(fresh)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        fresh.rename(self._path)
        # A process that a handler forks would hold the lock beyond the death of this one.
        os.register_at_fork(after_in_child=partial(_release_in_child, ref(self)))

    def let_go(self) -> None:
        """Close the file without a trace; the lock ends when no process has it open."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def leave(self) -> None:
        """Record that this process has ended normally; may be called twice."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            self.let_go()


def _release_in_child(held: "ref[ProcessLock]") -> None:
    lock = held()
    if lock is not None:
        lock.let_go()


def lives(state: Path, name: str) -> bool:
    """Return whether the process with this `name` is running."""
    try:
        file = os.open(_path(state, name), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def forget(state: Path, name: str) -> None:
    """Remove the lock file of a dead process."""
    _path(state, name).unlink(missing_ok=True)


def names(state: Path) -> Iterator[str]:
    """Yield every process that has started and not ended normally, dead or alive."""
    for path in sorted(state.glob(f"*{_SUFFIX}")):
        yield path.name.removesuffix(_SUFFIX)


@contextmanager
def only_one(state: Path, what: str) -> Iterator[None]:
    """Exclude all other threads and processes that share the folder from `what`."""
    state_folder(state)
    file = open_private(state / f"{what}.lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _path(state: Path, name: str) -> Path:
    return state / f"{name}{_SUFFIX}"
