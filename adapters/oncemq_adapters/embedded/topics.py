"""Publishing: a message and one delivery for each group of its topic, in one transaction."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from oncemq_adapters.embedded.schema import DELAYED, READY

_NO_OWNER = ""
"""The name of the group that keeps messages of a topic until the first real group replaces it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message ready to be written; times in microseconds.

    Args:
        properties: packed headers, keys and id.
        body: original bytes.
        published_at: when it was first published.
        due_at: not to be delivered before; 0 = at once.
    """

    properties: str
    body: bytes
    published_at: int
    due_at: int = 0


def register(connection: sqlite3.Connection, topic: str, group: str) -> int:
    """Return the group's number; a topic's first group takes over messages published before it existed."""
    number = find(connection, topic, group)
    if number is not None:
        return number
    adopted = connection.execute(
        "UPDATE oncemq_broker_groups SET name = ? WHERE topic = ? AND name = ? RETURNING id",
        (group, topic, _NO_OWNER),
    ).fetchone()
    if adopted is not None:
        return int(adopted[0])
    cursor = connection.execute(
        "INSERT INTO oncemq_broker_groups (topic, name) VALUES (?, ?)", (topic, group)
    )
    return int(cursor.lastrowid or 0)


def find(connection: sqlite3.Connection, topic: str, group: str) -> int | None:
    """Return the group's number; None if it was never registered."""
    row = connection.execute(
        "SELECT id FROM oncemq_broker_groups WHERE topic = ? AND name = ?", (topic, group)
    ).fetchone()
    return None if row is None else int(row[0])


def publish(connection: sqlite3.Connection, topic: str, messages: Sequence[Stored]) -> None:
    """Write messages for every group of the topic, in order."""
    rows = connection.execute("SELECT id FROM oncemq_broker_groups WHERE topic = ?", (topic,)).fetchall()
    groups = [row[0] for row in rows] or [register(connection, topic, _NO_OWNER)]
    write(connection, topic, groups, messages)


def write(
    connection: sqlite3.Connection, topic: str, groups: Sequence[int], messages: Sequence[Stored]
) -> None:
    """Write messages for these groups, in order."""
    connection.executemany(
        "INSERT INTO oncemq_broker_messages (topic, properties, published_at, body) VALUES (?, ?, ?, ?)",
        [(topic, message.properties, message.published_at, message.body) for message in messages],
    )
    # No other connection writes inside this transaction, so the numbers are consecutive.
    (last,) = connection.execute("SELECT last_insert_rowid()").fetchone()
    first = last - len(messages) + 1
    connection.executemany(
        "INSERT INTO oncemq_broker_deliveries (message_id, group_id, state, due_at) VALUES (?, ?, ?, ?)",
        [
            (number, group, DELAYED if message.due_at else READY, message.due_at)
            for number, message in enumerate(messages, first)
            for group in groups
        ],
    )


def remove(connection: sqlite3.Connection, topic: str, group: str) -> bool:
    """Remove a group with its waiting messages and dead letters; returns whether there was one."""
    number = find(connection, topic, group)
    if number is None:
        return False
    for table in ("deliveries", "dead"):
        connection.execute(f"DELETE FROM oncemq_broker_{table} WHERE group_id = ?", (number,))  # noqa: S608 - our own names
    connection.execute("DELETE FROM oncemq_broker_groups WHERE id = ?", (number,))
    connection.execute(
        "DELETE FROM oncemq_broker_messages WHERE topic = ? AND NOT EXISTS ("
        "SELECT 1 FROM oncemq_broker_deliveries AS waiting WHERE waiting.message_id = oncemq_broker_messages.id)",
        (topic,),
    )
    return True
