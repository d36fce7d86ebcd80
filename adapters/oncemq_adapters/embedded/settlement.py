"""Settling: each statement compares the lease's number, so a lost lease can never settle another owner's."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_CHUNK = 500
_OURS = """state = 1 AND (message_id, group_id, lease) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
    FROM json_each(?))"""
_WHICH = "RETURNING message_id, group_id, lease"
_FORGET = """
    DELETE FROM oncemq_broker_messages WHERE id IN (SELECT value FROM json_each(?)) AND NOT EXISTS (
        SELECT 1 FROM oncemq_broker_deliveries AS d WHERE d.message_id = oncemq_broker_messages.id)"""
_BURY = """
    INSERT INTO oncemq_broker_dead (group_id, properties, published_at, dead_at, body)
    SELECT ?, ?, published_at, ?, body FROM oncemq_broker_messages WHERE id = ?"""


@dataclass(frozen=True, slots=True)
class Hold:
    """What we hold: a message of a group, under one lease."""

    message_id: int
    group_id: int
    lease: int


def acknowledge(connection: sqlite3.Connection, holds: Sequence[Hold]) -> set[Hold]:
    """Remove these deliveries, and messages that no group needs any more; returns those that were ours."""
    done: set[Hold] = set()
    for start in range(0, len(holds), _CHUNK):
        rows = connection.execute(
            f"DELETE FROM oncemq_broker_deliveries WHERE {_OURS} {_WHICH}",  # noqa: S608 - constants
            (_text(holds[start : start + _CHUNK]),),
        ).fetchall()
        connection.execute(_FORGET, (json.dumps([row[0] for row in rows]),))
        done.update(Hold(*row) for row in rows)
    return done


def give_back(connection: sqlite3.Connection, holds: Sequence[Hold]) -> set[Hold]:
    """Let others take these at once."""
    return _update(connection, "state = 0, owner = NULL", (), holds)


def extend(connection: sqlite3.Connection, holds: Sequence[Hold], until: int) -> set[Hold]:
    """Let these leases last until then; never shortens one."""
    return _update(connection, "due_at = max(due_at, ?)", (until,), holds)


def retry(connection: sqlite3.Connection, hold: Hold, properties: str, due_at: int) -> bool:
    """Let one delivery come again at `due_at`, as new, with other properties; False if it was not ours."""
    changes = "state = 2, owner = NULL, delivered = 0, due_at = ?, properties = ?"
    return bool(_update(connection, changes, (due_at, properties), [hold]))


def publish_dead_letters(connection: sqlite3.Connection, holds: Mapping[Hold, str], now: int) -> set[Hold]:
    """Make dead letters of these, with the given properties; returns those that were ours."""
    ours = _update(connection, "owner = owner", (), list(holds))
    buried = [hold for hold in holds if hold in ours]
    connection.executemany(_BURY, [(hold.group_id, holds[hold], now, hold.message_id) for hold in buried])
    return acknowledge(connection, buried)


def _update(
    connection: sqlite3.Connection, changes: str, values: tuple[object, ...], holds: Sequence[Hold]
) -> set[Hold]:
    sql = f"UPDATE oncemq_broker_deliveries SET {changes} WHERE {_OURS} {_WHICH}"  # noqa: S608 - constants
    return {Hold(*row) for row in connection.execute(sql, (*values, _text(holds))).fetchall()}


def _text(holds: Collection[Hold]) -> str:
    return json.dumps([(hold.message_id, hold.group_id, hold.lease) for hold in holds])
