"""Takes leases: due deliveries become ready, and the oldest ready ones of a group are leased to us."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

_BYTES = 16 * 1024 * 1024
_DUE = "UPDATE oncemq_broker_deliveries SET state = 0, owner = NULL WHERE state <> 0 AND due_at <= ?"
_READY = "SELECT 1 FROM oncemq_broker_deliveries WHERE group_id = ? AND state = 0 LIMIT 1"
_OLDEST = """
    SELECT d.message_id, d.lease, d.delivered, coalesce(d.properties, m.properties), m.published_at, m.body
    FROM oncemq_broker_deliveries AS d JOIN oncemq_broker_messages AS m ON m.id = d.message_id
    WHERE d.group_id = ? AND d.state = 0 ORDER BY d.message_id LIMIT ?"""
_LEASE = """
    UPDATE oncemq_broker_deliveries SET state = 1, owner = ?, due_at = ?, lease = lease + 1, delivered = 1
    WHERE group_id = ? AND state = 0 AND message_id <= ?"""
_DEPTH = """
    SELECT (SELECT count(*) FROM oncemq_broker_deliveries WHERE state = 0 AND group_id = :group)
         + (SELECT count(*) FROM oncemq_broker_deliveries WHERE state <> 0 AND state = 2 AND group_id = :group)"""

_BY_STATE = """
    SELECT coalesce(sum(state = 0), 0), coalesce(sum(state = 1), 0), coalesce(sum(state = 2), 0),
           min(CASE WHEN state = 2 THEN due_at END)
    FROM oncemq_broker_deliveries WHERE group_id = ?"""


@dataclass(frozen=True, slots=True)
class Taken:
    """One delivery taken; `lease` is the number that every settlement of it is compared with."""

    message_id: int
    lease: int
    redelivered: bool
    properties: str
    published_at: int
    body: bytes


def next_due(connection: sqlite3.Connection) -> int | None:
    """Return when the next delay or lease ends, in microseconds."""
    (due,) = connection.execute(
        "SELECT min(due_at) FROM oncemq_broker_deliveries WHERE state <> 0"
    ).fetchone()
    return None if due is None else int(due)


def is_ready(connection: sqlite3.Connection, group: int) -> bool:
    """Return whether the group has something that could be taken now."""
    return connection.execute(_READY, (group,)).fetchone() is not None


def make_due_ready(connection: sqlite3.Connection, now: int) -> None:
    """Let ended delays and leases be taken again, at their old place in the order."""
    connection.execute(_DUE, (now,))


def take(connection: sqlite3.Connection, group: int, member: int, limit: int, until: int) -> list[Taken]:
    """Take up to `limit` deliveries for `member`, oldest first; fewer when their bodies are large."""
    taken = list(_within_budget(connection.execute(_OLDEST, (group, limit))))
    if taken:
        connection.execute(_LEASE, (member, until, group, taken[-1].message_id))
    return taken


def depth(connection: sqlite3.Connection, group: int) -> int:
    """Return how many deliveries of the group wait, delayed ones included."""
    return int(connection.execute(_DEPTH, {"group": group}).fetchone()[0])


def by_state(connection: sqlite3.Connection, group: int) -> tuple[int, int, int, int | None]:
    """Return how many deliveries are ready, leased and delayed, and when the first delay ends, in microseconds."""
    ready, leased, delayed, due = connection.execute(_BY_STATE, (group,)).fetchone()
    return int(ready), int(leased), int(delayed), due


def _within_budget(rows: sqlite3.Cursor) -> Iterator[Taken]:
    budget = _BYTES
    for number, lease, delivered, properties, published_at, body in rows:
        yield Taken(number, lease + 1, bool(delivered), properties, published_at, body)
        budget -= len(body)
        if budget <= 0:
            rows.close()
            return
