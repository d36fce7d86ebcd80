"""Whether the process behind a member still lives, as far as this machine can tell."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Life:
    """What tells one process from all others, also after its number has been given to another one.

    Args:
        host: the machine's name.
        boot: changes when the machine starts again; empty where unknown.
        space: the process number space, which differs between containers; empty where unknown.
        pid: the process number.
        born: when the process started, in the system's own count; empty where unknown.
    """

    host: str
    boot: str
    space: str
    pid: int
    born: str


def this_process() -> Life:
    """Return the life of the process that asks."""
    return Life(socket.gethostname(), _boot(), _space(), os.getpid(), _born(os.getpid()))


def is_dead(other: Life, here: Life) -> bool:
    """Return whether `other` has surely ended; False where this process cannot know."""
    if other.host != here.host or not (here.boot and here.space):
        return False
    if other.boot != here.boot:
        return True
    return other.space == here.space and _born(other.pid) != other.born


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _born(pid: int) -> str:
    """Return the start time of process `pid`; empty when there is none, or only its unburied remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field is the program's name in parentheses, which may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
