"""Under which user a server runs, and where its data can stand so that this user reaches it."""

import os
import pwd
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_WITHOUT_RIGHTS = 65534
"""The user that owns nothing, on every Linux."""


@dataclass(frozen=True)
class Account:
    """A user to run as; servers refuse to run as root, or should."""

    name: str
    uid: int
    gid: int
    switches: bool

    @classmethod
    def choose(cls, *preferred: str) -> Self:
        """Return ourselves, or when we are root the first preferred user that exists."""
        if os.geteuid() != 0:
            return cls(str(os.geteuid()), os.geteuid(), os.getegid(), switches=False)
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        found = [known[name] for name in preferred if name in known]
        entry = found[0] if found else pwd.getpwuid(_WITHOUT_RIGHTS)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, switches=True)

    @classmethod
    def ourselves(cls) -> Self:
        """Return the user we are, also when that is root."""
        return cls(str(os.geteuid()), os.geteuid(), os.getegid(), switches=False)

    def popen_arguments(self) -> dict[str, Any]:
        """Return what subprocess needs to run as this user."""
        if not self.switches:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def make_folder(self, path: Path, within: Path | None = None) -> Path:
        """Make a private folder of this user and return its real place.

        Where it is to stand within another folder, or the user cannot traverse the parents (a checkout below /root), the path
        becomes a link: to a folder in that one, or under the system's temporary one.
        """
        if path.is_symlink() and not path.exists():
            path.unlink()
        if not path.exists() and (within is not None or (self.switches and not _open_to_all(path.parent))):
            path.symlink_to(tempfile.mkdtemp(prefix=f"oncemq-{path.parent.name}-", dir=within))
        path.mkdir(mode=0o700, exist_ok=True)
        real = path.resolve()
        if self.switches:
            os.chown(real, self.uid, self.gid)
        return real

    def write(self, file: Path, text: str) -> Path:
        """Write a file that only this user can read; a server that reads it meanwhile sees the old or the new one."""
        fresh = file.with_name(f".{file.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        if self.switches:
            os.chown(fresh, self.uid, self.gid)
        return fresh.replace(file)


def remove_folder(path: Path) -> None:
    """Remove a folder made by `make_folder`, wherever it really stands."""
    if path.is_symlink():
        shutil.rmtree(path.resolve(), ignore_errors=True)
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def _open_to_all(folder: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in (folder, *folder.parents))
