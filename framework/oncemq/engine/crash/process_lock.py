"""Locks that end with a process: they tell whether one that left flight recorders still lives.

A process id says neither: a container starts with the same one every time, and two containers that share
a folder cannot see each other's.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from oncemq.common.private_files import open_private, state_folder

_SUFFIX = ".alive"


class ProcessLock:
    """Says that this process lives: a locked file, whose lock ends with the process however that ends.

    Attributes:
        name: of this process, unlike any other's, also of those before it.
    """

    def __init__(self, state: Path) -> None:
        state_folder(state)
        self.name = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._path = _path(state, self.name)
        # Locked before it has its name: nobody may see it unlocked.
        fresh = self._path.with_suffix(".new")
        self._file = open_private(fresh)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        fresh.rename(self._path)

    def leave(self) -> None:
        """Say that this process has ended in order; may be called twice."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def lives(state: Path, name: str) -> bool:
    """Return whether the process that called itself `name` still runs."""
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
    """Remove what a dead process has left of its presence."""
    _path(state, name).unlink(missing_ok=True)


def names(state: Path) -> Iterator[str]:
    """Yield every process that has said that it lives and not that it has ended, dead or alive."""
    for path in sorted(state.glob(f"*{_SUFFIX}")):
        yield path.name.removesuffix(_SUFFIX)


@contextmanager
def only_one(state: Path, what: str) -> Iterator[None]:
    """Keep every other thread and process that shares the folder out of `what`."""
    state_folder(state)
    file = open_private(state / f"{what}.lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _path(state: Path, name: str) -> Path:
    return state / f"{name}{_SUFFIX}"
