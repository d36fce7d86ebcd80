"""Who takes part: every open adapter is a member, and a dead member's leases come back at once."""

import sqlite3

from oncemq_adapters.embedded.liveness import Life, is_dead, this_process

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
