"""Changes that operators made: what, to which consumer and key, who, when and why."""

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    Select,
    String,
    insert,
    select,
)

from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

WHO_SIZE = 255
"""Bytes of a person's name."""
MAX_TEXT = 2000
"""Length limit of a reason and of a target."""

TABLE = ledger_table(
    "audit",
    # SQLite assigns numbers only to a column whose type is INTEGER.
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("app", ExactText(CONSUMER_SIZE), nullable=False),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("action", String(32), nullable=False),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("target", LongText, nullable=False),
    Column("who", ExactText(WHO_SIZE), nullable=False),
    Column("why", LongText, nullable=False),
    Column("at", Moment, nullable=False),
    Index("oncemq_audit_app", "app", "id"),
    Index("oncemq_audit_key", "key"),
    Index("oncemq_audit_age", "consumer", "at"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One change by an operator.

    Args:
        app: the app's name.
        consumer: the ledger scope, `app.consumer`; the app's name where no consumer is meant.
        action: such as `pause` or `replay`.
        who: the person, as far as known.
        at: when, aware.
        why: the reason given; may be empty.
        key: the business key; empty where the change is not about one.
        target: what was changed, for people, such as the id of a dead letter.
    """

    app: str
    consumer: str
    action: str
    who: str
    at: datetime
    why: str = ""
    key: str = ""
    target: str = ""


def caller() -> str:
    """Return who runs this process, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def add(connection: Connection, changes: Sequence[Change]) -> None:
    """Store changes, in the transaction that makes them where the ledger is what is changed."""
    if changes:
        connection.execute(insert(TABLE), [_row(change) for change in changes])


def latest(connection: Connection, app: str, limit: int, consumer: str | None = None) -> list[Change]:
    """Return the latest changes of an app, newest first.

    Args:
        connection: for reading.
        app: the app's name.
        limit: the most changes.
        consumer: the ledger scope; None = every one.
    """
    found = _changes().where(TABLE.c.app == app)
    if consumer is not None:
        found = found.where(TABLE.c.consumer == consumer)
    return [Change(*row) for row in connection.execute(found.order_by(TABLE.c.id.desc()).limit(limit))]


def of_key(connection: Connection, app: str, key: str) -> list[Change]:
    """Return the changes about a key, oldest first."""
    found = _changes().where(TABLE.c.app == app, TABLE.c.key == storable(key, KEY_SIZE))
    return [Change(*row) for row in connection.execute(found.order_by(TABLE.c.id))]


def _changes() -> Select[Any]:
    c = TABLE.c
    return select(c.app, c.consumer, c.action, c.who, c.at, c.why, c.key, c.target)


def _row(change: Change) -> dict[str, object]:
    return {
        "app": change.app,
        "consumer": change.consumer,
        "action": change.action,
        "key": storable(change.key, KEY_SIZE),
        "target": storable(change.target, MAX_TEXT),
        "who": storable(change.who, WHO_SIZE),
        "why": storable(change.why, MAX_TEXT),
        "at": change.at,
    }
