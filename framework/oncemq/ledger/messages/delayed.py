"""Messages that are published for later: kept with the transaction that published them, given to the outbox when due.

They wait in a table of their own, because a row of the outbox holds back later messages of its key. They get their
place in the order of their key when they are due: first by their moment, then by the order of publishing.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Identity,
    Index,
    Integer,
    and_,
    delete,
    exists,
    func,
    insert,
    select,
)

from oncemq.contracts.unit import Outgoing
from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.ledger.messages.outbox_refused import BATCH, Chosen, Row
from oncemq.ledger.sql.column_types import Bytes, ExactText, LongText, Moment
from oncemq.ledger.sql.in_values import among
from oncemq.ledger.sql.row_locks import can_skip_locked
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table
from oncemq.message.envelope import OutgoingMessage

TABLE = ledger_table(
    "delayed",
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("app", ExactText(CONSUMER_SIZE), nullable=False),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("topic", ExactText(CONSUMER_SIZE), nullable=False),
    Column("key", ExactText(KEY_SIZE)),
    Column("message_id", ExactText(CONSUMER_SIZE), nullable=False),
    Column("headers", LongText, nullable=False),
    Column("body", Bytes, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("due_at", Moment, nullable=False),
    Index("oncemq_delayed_due", "app", "due_at", "id"),
    Index("oncemq_delayed_key", "app", "key"),
    Index("oncemq_delayed_message", "app", "message_id"),
    sqlite_autoincrement=True,
)

_SHOWN: Final = ("due_at", "topic", "message_id", "key", "consumer", "created_at")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Number of an app's messages that were published for later.

    Args:
        messages: how many.
        next_due: when the first is due, aware; None if there is none.
        due: how many of them are due already.
    """

    messages: int
    next_due: datetime | None
    due: int


def keep(
    connection: Connection, claim: Claim, consumer: str, outgoing: Sequence[Outgoing], now: datetime
) -> list[Stored]:
    """Store what was published, and delete what was cancelled, as if in the given order; returns the rows to send now.

    Args:
        connection: the transaction.
        claim: the owner of the rows to send now.
        consumer: the ledger scope of the publisher.
        outgoing: messages and cancellations.
        now: aware.
    """
    at_once: list[tuple[str, OutgoingMessage]] = []
    later: list[Outgoing] = []
    for sent in outgoing:
        if sent.cancels:
            later = [earlier for earlier in later if not _is_meant(sent, earlier)]
            cancel(connection, claim.app, chosen_by(sent))
        elif sent.waits:
            later.append(sent)
        else:
            at_once.append((sent.topic, sent.message))
    if later:
        _add(connection, claim.app, consumer, later, now)
    return outbox.add(connection, claim, consumer, at_once, now) if at_once else []


def chosen_by(cancelled: Outgoing) -> Chosen:
    """Return the filter of the messages that a cancellation means."""
    wanted = cancelled.message.message_id
    return Chosen(cancelled.topic, frozenset([wanted] if wanted else []), cancelled.message.key)


def locked(connection: Connection, app: str, chosen: Chosen, after: int = 0) -> list[Row]:
    """Lock messages that have not become due, for `drop`; at most `BATCH`, in the order of their numbers."""
    c = TABLE.c
    rows = select(c.id, c.consumer, c.key).where(*_chosen(app, chosen), c.id > after)
    return [Row(*row) for row in connection.execute(rows.order_by(c.id).limit(BATCH).with_for_update())]


def drop(connection: Connection, rows: Sequence[Row]) -> int:
    """Delete locked messages; returns how many."""
    return connection.execute(delete(TABLE).where(TABLE.c.id.in_([row.number for row in rows]))).rowcount


def cancel(connection: Connection, app: str, chosen: Chosen) -> int:
    """Delete messages that have not become due; returns how many."""
    return connection.execute(delete(TABLE).where(*_chosen(app, chosen))).rowcount


def any_due(connection: Connection, app: str, now: datetime) -> bool:
    """Return whether any message is due; a plain read without locks."""
    return bool(connection.execute(select(due_exists(connection.dialect, app, now))).scalar_one())


def due_exists(dialect: Dialect, app: str, now: datetime) -> ColumnElement[bool]:
    """Return the condition of `any_due`."""
    return exists().where(TABLE.c.app == app, _due(dialect, now))


def release(
    connection: Connection, claim: Claim, now: datetime, limit: int, besides: Sequence[str] = ()
) -> list[Stored]:
    """Move due messages to the outbox, those due first at first; returns their rows there, owned by `claim`.

    The transaction must be the only one of the app that does so: two of them could change the order of a key. A message
    that a transaction is about to cancel is left out.

    Args:
        connection: the transaction.
        claim: the owner of the rows in the outbox.
        now: aware.
        limit: maximum of messages.
        besides: topics that are left out.
    """
    due = [TABLE.c.app == claim.app, _due(connection.dialect, now)]
    if besides:
        due.append(TABLE.c.topic.not_in(sorted(besides)))
    wanted = select(TABLE).where(*due).order_by(TABLE.c.due_at, TABLE.c.id).limit(limit)
    locked = wanted.with_for_update(skip_locked=can_skip_locked(connection))
    rows = list(connection.execute(locked).mappings())
    if not rows:
        return []
    mine = among(connection, TABLE.c.id, BigInteger(), sorted(row["id"] for row in rows))
    connection.execute(delete(TABLE).where(mine))
    stored: list[Stored] = []
    for consumer, together in groupby(rows, lambda row: str(row["consumer"])):
        messages = [(str(row["topic"]), _message(row)) for row in together]
        stored += outbox.add(connection, claim, consumer, messages, now)
    return stored


def waiting(connection: Connection, app: str, now: datetime) -> Waiting:
    """Return how many messages wait for their moment."""
    counts = select(func.count(), func.min(TABLE.c.due_at)).where(TABLE.c.app == app)
    messages, next_due = connection.execute(counts).one()
    if next_due is None or next_due > now:
        return Waiting(messages, next_due, 0)
    due = select(func.count()).select_from(TABLE).where(TABLE.c.app == app, _due(connection.dialect, now))
    return Waiting(messages, next_due, int(connection.execute(due).scalar_one()))


def listed(connection: Connection, app: str, chosen: Chosen, limit: int) -> list[dict[str, Any]]:
    """Return messages that wait for their moment, the next one first; without bodies and headers."""
    rows = select(*(TABLE.c[name] for name in _SHOWN)).where(*_chosen(app, chosen))
    ordered = rows.order_by(TABLE.c.due_at, TABLE.c.id).limit(limit)
    return [dict(row) for row in connection.execute(ordered).mappings()]


def of_key(connection: Connection, app: str, key: str) -> list[dict[str, Any]]:
    """Return the waiting messages of a key, the next one first; without bodies, of the headers only the trace."""
    rows = select(*(TABLE.c[name] for name in _SHOWN if name != "key"), TABLE.c.headers)
    mine = rows.where(TABLE.c.app == app, TABLE.c.key == key).order_by(TABLE.c.due_at, TABLE.c.id)
    return [outbox.with_trace(row) for row in connection.execute(mine).mappings()]


def _due(dialect: Dialect, now: datetime) -> ColumnElement[bool]:
    """Return, for a statement, whether a message is due by our clock and by the database's: ours may have jumped."""
    return and_(TABLE.c.due_at <= now, TABLE.c.due_at <= server_moment(dialect))


def _chosen(app: str, chosen: Chosen) -> Sequence[ColumnElement[bool]]:
    found = [TABLE.c.app == app]
    if chosen.topic is not None:
        found.append(TABLE.c.topic == chosen.topic)
    if chosen.ids:
        found.append(TABLE.c.message_id.in_(sorted(chosen.ids)))
    if chosen.key is not None:
        found.append(TABLE.c.key == chosen.key)
    return found


def _is_meant(cancelled: Outgoing, earlier: Outgoing) -> bool:
    wanted, found = cancelled.message, earlier.message
    return (
        cancelled.topic == earlier.topic
        and wanted.key in (None, found.key)
        and wanted.message_id in (None, found.message_id)
    )


def _add(connection: Connection, app: str, consumer: str, later: Iterable[Outgoing], now: datetime) -> None:
    rows = [
        {
            "app": app,
            "consumer": consumer,
            "topic": sent.topic,
            "key": sent.message.key,
            "message_id": sent.message.message_id,
            "headers": json.dumps(dict(sent.message.headers)),
            "body": sent.message.body,
            "created_at": now,
            "due_at": sent.message.due_at,
        }
        for sent in later
    ]
    connection.execute(insert(TABLE), rows)


def _message(row: Any) -> OutgoingMessage:
    return OutgoingMessage(bytes(row["body"]), json.loads(row["headers"]), row["key"], row["message_id"])
