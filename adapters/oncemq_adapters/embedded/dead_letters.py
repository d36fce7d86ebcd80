"""Dead letters as they lie: listing in pages, replaying to their own group, removing for ever."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from oncemq.message import headers as names
from oncemq_adapters.embedded.stored_messages import pack, unpack
from oncemq_adapters.embedded.topics import Stored, write

_PAGE = """
    SELECT id, properties, published_at, dead_at, body FROM oncemq_broker_dead
    WHERE group_id = ? AND id > ? ORDER BY id LIMIT ?"""

_ADD = """
    INSERT INTO oncemq_broker_dead (group_id, properties, published_at, dead_at, body)
    VALUES (?, ?, ?, ?, ?)"""


@dataclass(frozen=True, slots=True)
class Grave:
    """One dead letter; times in microseconds."""

    id: int
    properties: str
    published_at: int
    dead_at: int
    body: bytes


def add(connection: sqlite3.Connection, group: int, graves: Sequence[Grave]) -> None:
    """Store dead letters; they are given numbers of their own."""
    rows = [(group, grave.properties, grave.published_at, grave.dead_at, grave.body) for grave in graves]
    connection.executemany(_ADD, rows)


def page(connection: sqlite3.Connection, group: int, after: int, limit: int) -> list[Grave]:
    """Return up to `limit` dead letters behind number `after`, oldest first."""
    return [Grave(*row) for row in connection.execute(_PAGE, (group, after, limit))]


def count(connection: sqlite3.Connection, group: int) -> int:
    """Return how many dead letters there are."""
    found = connection.execute("SELECT count(*) FROM oncemq_broker_dead WHERE group_id = ?", (group,))
    return int(found.fetchone()[0])


def replay(connection: sqlite3.Connection, topic: str, group: int, ids: Sequence[str]) -> int:
    """Send dead letters to this group alone, as new messages with fresh attempts; returns how many."""
    graves = [
        grave
        for number in _numbers(ids)
        for grave in page(connection, group, number - 1, 1)
        if grave.id == number
    ]
    write(connection, topic, [group], [_risen(topic, grave) for grave in graves])
    return _remove(connection, group, [grave.id for grave in graves])


def purge(connection: sqlite3.Connection, group: int, ids: Sequence[str]) -> int:
    """Remove dead letters; returns how many there were."""
    return _remove(connection, group, _numbers(ids))


def _risen(topic: str, grave: Grave) -> Stored:
    message = unpack(topic, grave.properties, grave.body, grave.published_at)
    properties = pack(names.for_replay(message.headers), message.keys, message.message_id)
    return Stored(properties, grave.body, grave.published_at)


def _remove(connection: sqlite3.Connection, group: int, numbers: Sequence[int]) -> int:
    cursor = connection.executemany(
        "DELETE FROM oncemq_broker_dead WHERE group_id = ? AND id = ?",
        [(group, number) for number in numbers],
    )
    return max(cursor.rowcount, 0)


def _numbers(ids: Sequence[str]) -> list[int]:
    """Return the ids that can be ours, each once, oldest first."""
    return sorted({int(text) for text in ids if text.isascii() and text.isdigit() and len(text) < 19})
