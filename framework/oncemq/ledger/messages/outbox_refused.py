"""Outbox rows that their broker has refused: an operator inspects them, retries them or drops them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, func, select, update

from oncemq.ledger.messages.outbox import DEAD, TABLE

_UNOWNED = ""
_SHOWN = ("message_id", "topic", "key", "consumer", "created_at", "attempts", "due_at", "error", "owner")
WAITS, DEAD_LETTER = "waits", "dead letter"


BATCH = 500
"""Messages in one transaction of an operator's command."""


class Row(NamedTuple):
    """A stored message that an operator decides about.

    Args:
        number: its row's.
        scope: the ledger scope of what published it.
        key: the business key.
    """

    number: int
    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """Filter of refused messages; unset fields do not restrict it.

    Args:
        topic: the topic's name in the app, which may have been removed.
        ids: message ids.
        key: the business key.
    """

    topic: str | None = None
    ids: frozenset[str] = frozenset()
    key: str | None = None


def listed(connection: Connection, app: str, chosen: Chosen, limit: int) -> list[dict[str, Any]]:
    """Return refused messages, oldest first; without bodies and headers.

    `state` is "waits" (tried again at `due_at`) or "dead letter" (kept until an operator decides; `due_at` is None).
    """
    rows = select(*(TABLE.c[name] for name in _SHOWN)).where(*_refused(app, chosen))
    return [_described(row) for row in connection.execute(rows.order_by(TABLE.c.id).limit(limit)).mappings()]


def whole(connection: Connection, app: str, message_id: str) -> list[dict[str, Any]]:
    """Return the refused messages of this id as `listed` does, with `headers` (a mapping) and `body` (bytes)."""
    rows = select(*(TABLE.c[name] for name in (*_SHOWN, "headers", "body")))
    found = rows.where(*_refused(app, Chosen(ids=frozenset({message_id})))).order_by(TABLE.c.id)
    return [
        {**_described(row), "headers": json.loads(row["headers"]), "body": bytes(row["body"])}
        for row in connection.execute(found).mappings()
    ]


def locked(connection: Connection, app: str, chosen: Chosen, now: datetime, after: int = 0) -> list[Row]:
    """Lock refused messages, dead letters included, for `retry` or `drop`; at most `BATCH`, in the order of their numbers.

    A message that a process is sending is left out: the broker may accept it this time.

    Args:
        connection: the transaction.
        app: the app's name.
        chosen: the filter.
        now: aware.
        after: only higher numbers.
    """
    c = TABLE.c
    rows = select(c.id, c.consumer, c.key).where(*_refused(app, chosen), _idle(now), c.id > after)
    return [Row(*row) for row in connection.execute(rows.order_by(c.id).limit(BATCH).with_for_update())]


def retry(connection: Connection, rows: Sequence[Row], now: datetime) -> int:
    """Make locked messages due now; returns how many. Any running worker sends them."""
    mine = update(TABLE).where(TABLE.c.id.in_([row.number for row in rows]))
    return connection.execute(mine.values(owner=_UNOWNED, due_at=now)).rowcount


def drop(connection: Connection, rows: Sequence[Row]) -> int:
    """Delete locked messages; returns how many."""
    return connection.execute(delete(TABLE).where(TABLE.c.id.in_([row.number for row in rows]))).rowcount


def count(connection: Connection, app: str, chosen: Chosen) -> int:
    """Return how many refused messages there are."""
    rows = select(func.count()).select_from(TABLE).where(*_refused(app, chosen))
    return int(connection.execute(rows).scalar_one())


def _described(row: RowMapping) -> dict[str, Any]:
    found = dict(row)
    dead = found.pop("owner") == DEAD
    return {**found, "state": DEAD_LETTER if dead else WAITS, "due_at": None if dead else found["due_at"]}


def _idle(now: datetime) -> ColumnElement[bool]:
    """Return the condition for rows that no process is sending."""
    return TABLE.c.owner.in_([_UNOWNED, DEAD]) | (TABLE.c.due_at <= now)


def _refused(app: str, chosen: Chosen) -> Sequence[ColumnElement[bool]]:
    found = [TABLE.c.app == app, TABLE.c.error.is_not(None)]
    if chosen.topic is not None:
        found.append(TABLE.c.topic == chosen.topic)
    if chosen.ids:
        found.append(TABLE.c.message_id.in_(sorted(chosen.ids)))
    if chosen.key is not None:
        found.append(TABLE.c.key == chosen.key)
    return found
