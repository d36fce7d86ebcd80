"""Folders and files that only this user may read or write, also where the folder around them is shared, such as /tmp."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o007
_ALL_BUT_US = 0o077


def private_folder(path: Path) -> Path:
    """Return `path`, made if it is missing: a folder of mode 700 that is ours, and no link.

    Raises:
        PermissionError: it is a link, no folder, or somebody else's.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(0, "it is a link or no folder, and must be a folder of our own", str(path))
    if found.st_uid != os.geteuid():
        raise PermissionError(0, f"it belongs to user {found.st_uid}, and must be our own", str(path))
    if found.st_mode & _ALL_BUT_US:
        path.chmod(0o700)
    return path


def state_folder(path: Path) -> Path:
    """Return `path`, made with mode 700 if it is missing; one that is there and ours is closed to others.

    A volume may be a link, or belong to somebody else: its files are private by themselves.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    return path


def open_private(path: Path) -> int:
    """Open a file of ours for reading and writing, made with mode 600 if it is missing; returns its descriptor.

    Raises:
        OSError: it is a link, or somebody else's.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    found = os.fstat(file)
    if found.st_uid != os.geteuid():
        os.close(file)
        raise PermissionError(0, f"it belongs to user {found.st_uid}, and must be our own", str(path))
    if found.st_mode & _ALL_BUT_US:
        os.fchmod(file, 0o600)
    return file


def close_to_others(path: Path) -> None:
    """Make a file with mode 600 unless it is there; one of ours is closed to those who are not in its group."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return
    with suppress(OSError):
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
