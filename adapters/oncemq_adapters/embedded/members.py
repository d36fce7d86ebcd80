"""Members of the broker: every open adapter is one, and a dead member's leases come back at once."""

import os
import socket
import sqlite3
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
    """Return the start time of process `pid`; empty when there is none, or only its unburied remains.

    A process that dies may be shown as remains while other threads of it are still ending: its files and their locks are
    held until then, and what it left behind is not readable as that of a dead process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field is the program's name in parentheses, which may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    ended, threads = fields[0] in ("Z", "X"), int(fields[17])
    return "" if ended and threads <= 1 else fields[19]


_RELEASE = """UPDATE oncemq_broker_deliveries SET state = 0, owner = NULL WHERE state = 1 AND owner = ?"""


def join(connection: sqlite3.Connection) -> int:
    """Add this process as a member; returns its number, which is never used again."""
    life = this_process()
    cursor = connection.execute(
        "INSERT INTO oncemq_broker_members (host, boot, space, pid, born) VALUES (?, ?, ?, ?, ?)",
        (life.host, life.boot, life.space, life.pid, life.born),
    )
    return int(cursor.lastrowid or 0)


def leave(connection: sqlite3.Connection, member: int) -> int:
    """Remove a member; returns how many deliveries that it held may now be had by others."""
    released = connection.execute(_RELEASE, (member,)).rowcount
    connection.execute("DELETE FROM oncemq_broker_members WHERE id = ?", (member,))
    return released


def dead_ones(connection: sqlite3.Connection, but: int) -> list[int]:
    """Return the members whose process has surely ended; only reads."""
    here = this_process()
    rows = connection.execute(
        "SELECT id, host, boot, space, pid, born FROM oncemq_broker_members WHERE id <> ?", (but,)
    )
    return [number for number, *life in rows.fetchall() if is_dead(Life(*life), here)]
