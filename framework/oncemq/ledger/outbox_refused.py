"""Rows of the outbox that their broker has refused: looked at by a person, who may give them up."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, select

from oncemq.ledger.outbox import TABLE

_NOBODY = ""
_SHOWN = ("message_id", "topic", "key", "consumer", "created_at", "attempts", "due_at", "error")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which refused messages are meant; what is not given does not restrict.

    Args:
        topic: the topic's name in the app; also one that is there no more.
        ids: message ids.
        key: the business key.
    """

    topic: str | None = None
    ids: frozenset[str] = frozenset()
    key: str | None = None


def listed(connection: Connection, app: str, chosen: Chosen, limit: int) -> list[dict[str, object]]:
    """Return refused messages, oldest first; without bodies and headers."""
    rows = select(*(TABLE.c[name] for name in _SHOWN)).where(*_refused(app, chosen))
    return [dict(row) for row in connection.execute(rows.order_by(TABLE.c.id).limit(limit)).mappings()]


def drop(connection: Connection, app: str, chosen: Chosen, now: datetime) -> int:
    """Delete refused messages; returns how many.

    What somebody is sending just now stays: its broker may be taking it this time.

    Args:
        connection: the transaction.
        app: the app's name.
        chosen: which ones.
        now: aware.
    """
    nobodys = (TABLE.c.owner == _NOBODY) | (TABLE.c.due_at <= now)
    return connection.execute(delete(TABLE).where(*_refused(app, chosen), nobodys)).rowcount


def count(connection: Connection, app: str, chosen: Chosen) -> int:
    """Return how many refused messages there are."""
    rows = select(func.count()).select_from(TABLE).where(*_refused(app, chosen))
    return int(connection.execute(rows).scalar_one())


def _refused(app: str, chosen: Chosen) -> Sequence[ColumnElement[bool]]:
    found = [TABLE.c.app == app, TABLE.c.error.is_not(None)]
    if chosen.topic is not None:
        found.append(TABLE.c.topic == chosen.topic)
    if chosen.ids:
        found.append(TABLE.c.message_id.in_(sorted(chosen.ids)))
    if chosen.key is not None:
        found.append(TABLE.c.key == chosen.key)
    return found
