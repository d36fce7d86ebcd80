"""Starts processes that outlive us and stops exactly those, with their descendants, by pid and start time."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from services.account import Account
from services.waiting import wait_until


@dataclass(frozen=True)
class Launch:
    """What to run, and how it wants to be stopped."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    listens_on: int | None = None
    """A port that must accept connections before the next launch starts."""


@dataclass(frozen=True)
class Process:
    """A running process; the start time tells it from a later one with the same pid."""

    pid: int
    started: str
    child: subprocess.Popen[bytes] | None = field(default=None, compare=False)

    @classmethod
    def start(cls, launch: Launch, *, folder: Path, account: Account) -> Self:
        """Start it in a session of its own, its output appended to a log in the folder."""
        with (folder / f"{launch.name}.log").open("ab") as log:
            child = subprocess.Popen(
                launch.argv,
                env={**_plain_environment(), **launch.environment},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **account.popen_arguments(),
            )
        process = cls(child.pid, _start_time(child.pid) or "", child)
        process.save(launch, folder=folder)
        return process

    @classmethod
    def current(cls) -> Self:
        """Return the process that runs this code."""
        return cls(os.getpid(), _start_time(os.getpid()) or "")

    def save(self, launch: Launch, *, folder: Path) -> None:
        """Note it in the folder, for `load` in another process."""
        (folder / f"{launch.name}.pid").write_text(f"{self.pid} {self.started}\n")

    @classmethod
    def load(cls, launch: Launch, *, folder: Path) -> Self | None:
        """Return the process an earlier call started, if it still runs."""
        try:
            pid, started = (folder / f"{launch.name}.pid").read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        process = cls(int(pid), started)
        return process if process.alive else None

    @property
    def alive(self) -> bool:
        """Whether it runs; a dead child of ours is reaped on the way."""
        if self.child is not None:
            return self.child.poll() is None
        return _start_time(self.pid) == self.started

    def send(self, what: signal.Signals) -> None:
        """Signal this process alone."""
        _signal(self.pid, what)

    def freeze(self) -> None:
        """Stop it and all its descendants where they are."""
        for process in self._tree():
            process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it and its descendants go on."""
        for process in self._tree():
            process.send(signal.SIGCONT)

    def kill(self, *, seconds: float = 10) -> bool:
        """SIGKILL it with all its descendants at once; return whether all are gone in time."""
        # Frozen first: nothing can be forked, or cleaned up, between two kills.
        self.freeze()
        tree = self._tree()
        for process in tree:
            process.send(signal.SIGKILL)
        return wait_until(lambda: not any(process.alive for process in tree), seconds=seconds)

    def terminate(self, what: signal.Signals, *, seconds: float = 30) -> bool:
        """Ask it to stop, then kill what is left; return whether it went by itself."""
        tree = self._tree()
        self.thaw()
        self.send(what)
        gone = wait_until(lambda: not any(process.alive for process in tree), seconds=seconds)
        for process in tree:
            if process.alive:
                process.kill()
        return gone

    def _tree(self) -> list["Process"]:
        """Return it and its descendants, parents first."""
        if not self.alive:
            return []
        children = _children()
        tree: list[Process] = [self]
        for process in tree:
            tree.extend(Process(pid, started) for pid, started in children.get(process.pid, ()))
        return tree


def _signal(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


def _stat(pid: int | str) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command name, the state first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _start_time(pid: int) -> str | None:
    fields = _stat(pid)
    return None if fields is None or _ended(fields) else fields[19]


def _ended(fields: list[str]) -> bool:
    """Return whether no thread is left: until then a process that was killed holds its ports and files."""
    return fields[0] in "ZX" and int(fields[17]) <= 1


def _children() -> dict[int, list[tuple[int, str]]]:
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(entry)) is not None and not _ended(fields):
            children.setdefault(int(fields[1]), []).append((int(entry), fields[19]))
    return children


def _plain_environment() -> dict[str, str]:
    """Return an environment in which servers start the same from every shell."""
    return {
        "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
