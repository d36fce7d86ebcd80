"""Changes that operators made: what, to which consumer and key, who, when and why."""

import getpass
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    bindparam,
    insert,
    inspect,
    select,
    update,
)

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment, storable
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

WHO_SIZE = 255
"""Bytes of a person's name."""
MAX_TEXT = 2000
"""Length limit of a reason and of a target."""

REQUESTED, DONE, FAILED = "requested", "done", "failed"
"""States of a change. `requested` stays if the command was killed: then it may have been made in part."""

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
    Column("affected", Integer),
    Column("state", String(16), nullable=False, server_default="done"),
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
        action: such as `pause` or `dead-letters replay`.
        who: the person, as far as known.
        at: when, aware, by the database's clock, which fills it in.
        why: the reason given; may be empty.
        key: the business key; empty where the change is not about one.
        target: what was changed, for people, such as the ids that were selected.
        affected: how many messages or rows were changed; None where that is not counted or not known.
        state: `requested`, `done` or `failed`.
    """

    app: str
    consumer: str
    action: str
    who: str
    at: datetime | None = None
    why: str = ""
    key: str = ""
    target: str = ""
    affected: int | None = None
    state: str = DONE


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
        now = server_moment(connection.dialect)
        connection.execute(insert(TABLE).values(at=now), [_row(change) for change in changes])


def request(connection: Connection, changes: Sequence[Change]) -> list[int]:
    """Store changes that are made elsewhere, before they are made; returns their numbers, for `settle`."""
    numbers: list[int] = []
    for change in changes:
        row = _row(replace(change, state=REQUESTED))
        key = connection.execute(insert(TABLE).values(at=server_moment(connection.dialect), **row))
        numbers.extend(key.inserted_primary_key or ())
    return numbers


def settle(connection: Connection, state: str, affected: Mapping[int, int | None]) -> None:
    """Store what came of requested changes: their state, and how many each affected, by number."""
    if affected:
        ended = update(TABLE).where(TABLE.c.id == bindparam("number"))
        rows = [{"number": number, "count": count} for number, count in affected.items()]
        connection.execute(ended.values(state=state, affected=bindparam("count")), rows)


def latest(
    connection: Connection,
    app: str,
    limit: int,
    *,
    consumer: str | None = None,
    key: str | None = None,
    since: datetime | None = None,
) -> list[Change]:
    """Return the latest changes of an app, newest first.

    Args:
        connection: for reading.
        app: the app's name.
        limit: the most changes.
        consumer: the ledger scope; None = every one.
        key: the business key; None = every one.
        since: aware; only from then on.
    """
    c = TABLE.c
    found = _changes().where(c.app == app)
    if consumer is not None:
        found = found.where(c.consumer == consumer)
    if key is not None:
        found = found.where(c.key == storable(key, KEY_SIZE))
    if since is not None:
        found = found.where(c.at >= since)
    return [Change(*row) for row in connection.execute(found.order_by(c.id.desc()).limit(limit))]


def of_key(connection: Connection, app: str, key: str) -> list[Change]:
    """Return the changes about a key, oldest first."""
    found = _changes().where(TABLE.c.app == app, TABLE.c.key == storable(key, KEY_SIZE))
    return [Change(*row) for row in connection.execute(found.order_by(TABLE.c.id))]


def outcome_columns(connection: Connection) -> Sequence[str]:
    """Return the statements that give an older table its columns `affected` and `state`."""
    found = inspect(connection)
    if not found.has_table(TABLE.name):
        return ()  # it is created with them
    present = {column["name"] for column in found.get_columns(TABLE.name)}
    wanted = {"affected": "INTEGER", "state": f"VARCHAR(16) DEFAULT '{DONE}' NOT NULL"}
    return [
        f"ALTER TABLE {TABLE.name} ADD COLUMN {name} {kind}"
        for name, kind in wanted.items()
        if name not in present
    ]


def _changes() -> Select[Any]:
    c = TABLE.c
    return select(c.app, c.consumer, c.action, c.who, c.at, c.why, c.key, c.target, c.affected, c.state)


def _row(change: Change) -> dict[str, object]:
    return {
        "app": change.app,
        "consumer": change.consumer,
        "action": change.action,
        "key": storable(change.key, KEY_SIZE),
        "target": storable(change.target, MAX_TEXT),
        "who": storable(change.who, WHO_SIZE),
        "why": storable(change.why, MAX_TEXT),
        "affected": change.affected,
        "state": change.state,
    }
