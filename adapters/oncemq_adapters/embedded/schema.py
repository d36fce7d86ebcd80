"""The broker's tables, and that a file of another version is refused instead of guessed at."""

import sqlite3

from oncemq.errors import BrokerRefused

VERSION = 1

READY, LEASED, DELAYED = 0, 1, 2
"""States of a delivery; LEASED and DELAYED become READY when `due_at` has passed."""

# One row in `messages` for each message, one in `deliveries` for each group that has not finished it. The
# partial indexes hold only waiting rows, so that a long backlog costs the hot paths nothing.
_TABLES = (
    "CREATE TABLE oncemq_broker_version (version INTEGER NOT NULL)",
    """CREATE TABLE oncemq_broker_groups (
        id INTEGER PRIMARY KEY, topic TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (topic, name))""",
    """CREATE TABLE oncemq_broker_messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, properties TEXT NOT NULL,
        published_at INTEGER NOT NULL, body BLOB NOT NULL)""",
    """CREATE TABLE oncemq_broker_deliveries (
        message_id INTEGER NOT NULL, group_id INTEGER NOT NULL, state INTEGER NOT NULL,
        due_at INTEGER NOT NULL, owner INTEGER, lease INTEGER NOT NULL DEFAULT 0,
        delivered INTEGER NOT NULL DEFAULT 0, properties TEXT,
        PRIMARY KEY (message_id, group_id)) WITHOUT ROWID""",
    """CREATE INDEX oncemq_broker_ready ON oncemq_broker_deliveries (group_id, message_id)
        WHERE state = 0""",
    "CREATE INDEX oncemq_broker_due ON oncemq_broker_deliveries (due_at) WHERE state <> 0",
    """CREATE TABLE oncemq_broker_dead (
        id INTEGER PRIMARY KEY AUTOINCREMENT, group_id INTEGER NOT NULL, properties TEXT NOT NULL,
        published_at INTEGER NOT NULL, dead_at INTEGER NOT NULL, body BLOB NOT NULL)""",
    "CREATE INDEX oncemq_broker_dead_of ON oncemq_broker_dead (group_id, id)",
    """CREATE TABLE oncemq_broker_members (
        id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, boot TEXT NOT NULL, space TEXT NOT NULL,
        pid INTEGER NOT NULL, born TEXT NOT NULL)""",
)


def ensure(connection: sqlite3.Connection, place: str) -> None:
    """Create the tables where there are none; call inside a write transaction.

    Raises:
        BrokerRefused: the file was written by another version.
    """
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncemq_broker_version'"
    ).fetchone()
    if known is None:
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO oncemq_broker_version (version) VALUES (?)", (VERSION,))
        return
    (version,) = connection.execute("SELECT max(version) FROM oncemq_broker_version").fetchone()
    if version != VERSION:
        raise BrokerRefused(
            f"embedded broker {place}: the file has schema version {version}, this OnceMQ writes version {VERSION}; "
            "use the OnceMQ that wrote it until its messages are consumed, or name a new file"
        )
