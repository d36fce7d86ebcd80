"""Creates folders and files that only this user can access, even inside a shared folder such as /tmp."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o007
_ALL_BUT_US = 0o077


def private_folder(path: Path) -> Path:
    """Return `path`, created if missing: a folder with mode 700, owned by this user, and not a link.

    Raises:
        PermissionError: it is a link, not a folder, or owned by another user.
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
    """Return `path`, created with mode 700 if missing; an existing one of this user is closed to others.

    A volume may be a link or owned by another user: its files are private by their own modes.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    return path


def open_private(path: Path) -> int:
    """Open a file of this user for reading and writing, created with mode 600 if missing; returns its descriptor.

    Raises:
        OSError: it is a link, or owned by another user.
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
    """Create a file with mode 600 unless it exists; one of this user is closed to those outside its group."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return
    with suppress(OSError):
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
