"""Published messages of handlers: stored in the handler's transaction, deleted once their broker has confirmed them.

A row may be sent only by its `owner`, until `due_at`. The first owner is the process that stored it; if it died, or
the broker refused the message, the row becomes due and any relay takes it over. A row may be sent only while no
older row of its app, topic and key exists, which keeps the order of a key over any number of processes: a row is
deleted once its broker has confirmed it, so a row that still exists has not been sent.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Identity,
    Index,
    Integer,
    RowMapping,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    select,
    text,
    update,
)

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.sql import array_literals
from oncemq.ledger.sql.column_types import Bytes, ExactText, LongText, Moment
from oncemq.ledger.sql.in_values import among
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.headers import DUE_AT, trace_of

TABLE = ledger_table(
    "outbox",
    # SQLite assigns numbers only to a column whose type is INTEGER; numbers of deleted rows must not be reused.
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
    Column("owner", ExactText(64), nullable=False),
    Column("due_at", Moment, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", LongText),
    Index("oncemq_outbox_order", "app", "key", "topic", "id"),
    Index("oncemq_outbox_due", "app", "due_at"),
    sqlite_autoincrement=True,
)

DEAD = "dead"
"""Owner of rows kept for an operator: never sent automatically, and no other row waits for them."""

_KEPT_FOR = timedelta(days=365 * 1000)
"""A dead row never becomes due in practice, also for processes of an earlier version."""

_ARRAYS = ("topics", "keys", "message_ids", "headers")
_FROM_ARRAYS = text(
    f"INSERT INTO {TABLE.name} (app, consumer, topic, key, message_id, headers, body, created_at, owner, due_at, attempts)"  # noqa: S608 - our own names
    " SELECT :app, :consumer, r.topic, r.key, r.message_id, r.headers, r.body, :now, :owner, :due_at, 0 FROM unnest("
    + ", ".join(f"CAST(:{name} AS text[])" for name in _ARRAYS)
    + ", CAST(:bodies AS bytea[])) WITH ORDINALITY AS r(topic, key, message_id, headers, body, position)"
    " ORDER BY r.position RETURNING id"
)
"""All rows in one statement for PostgreSQL, numbered in the order of publishing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Owner of rows, and the end of its lease on them.

    Args:
        app: the app's name.
        owner: a token unique to the process.
        due_at: from then on any process may take the rows over; aware.
    """

    app: str
    owner: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Stored:
    """One row that has an owner.

    Args:
        id: its number; higher ones were published later.
        topic: the topic's name in the app.
        message: the message to send.
        attempts: how often the broker has refused it.
    """

    id: int
    topic: str
    message: OutgoingMessage = field(repr=False)
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Depth:
    """Number and age of the messages to be sent.

    Args:
        messages: how many; includes those sent and not yet confirmed.
        oldest: when the oldest was published, aware; None if there is none.
        refused: how many of them were refused at least once.
        dead: how many more are kept for an operator, since their broker could not route them.
    """

    messages: int
    oldest: datetime | None
    refused: int
    dead: int = 0


def add(
    connection: Connection,
    claim: Claim,
    consumer: str,
    messages: Sequence[tuple[str, OutgoingMessage]],
    now: datetime,
) -> list[Stored]:
    """Store messages in one statement, in order; returns them as rows that `claim` owns.

    Args:
        connection: the handlers' transaction.
        claim: their owner.
        consumer: the ledger scope of the publisher.
        messages: topic and message.
        now: aware.
    """
    if connection.dialect.name == "postgresql":
        ids = _add_arrays(connection, claim, consumer, messages, now)
    else:
        ids = _add_rows(connection, claim, consumer, messages, now)
    pairs = zip(sorted(ids), messages, strict=True)
    return [Stored(number, topic, message) for number, (topic, message) in pairs]


def _add_arrays(
    connection: Connection,
    claim: Claim,
    consumer: str,
    messages: Sequence[tuple[str, OutgoingMessage]],
    now: datetime,
) -> Iterable[int]:
    parameters = {
        "app": claim.app,
        "consumer": consumer,
        "now": now,
        "owner": claim.owner,
        "due_at": claim.due_at,
        "topics": array_literals.of_texts(topic for topic, _ in messages),
        "keys": array_literals.of_texts(message.key for _, message in messages),
        "message_ids": array_literals.of_texts(message.message_id for _, message in messages),
        "headers": array_literals.of_texts(_json(message) for _, message in messages),
        "bodies": array_literals.of_bytes(message.body for _, message in messages),
    }
    return connection.execute(_FROM_ARRAYS, parameters).scalars()


def _add_rows(
    connection: Connection,
    claim: Claim,
    consumer: str,
    messages: Sequence[tuple[str, OutgoingMessage]],
    now: datetime,
) -> Iterable[int]:
    always = {
        "app": claim.app,
        "consumer": consumer,
        "created_at": now,
        "owner": claim.owner,
        "due_at": claim.due_at,
        "attempts": 0,
    }
    rows = [
        {
            **always,
            "topic": topic,
            "key": message.key,
            "message_id": message.message_id,
            "headers": _json(message),
            "body": message.body,
        }
        for topic, message in messages
    ]
    if connection.dialect.insert_returning:
        returning = insert(TABLE).returning(TABLE.c.id, sort_by_parameter_order=True)
        return connection.execute(returning, rows).scalars()
    # MySQL returns the number of the first row only, and the others may follow with gaps.
    first = connection.execute(insert(TABLE).values(rows)).lastrowid
    ours = select(TABLE.c.id).where(TABLE.c.id >= first, TABLE.c.owner == claim.owner)
    return connection.execute(ours.order_by(TABLE.c.id).limit(len(rows))).scalars()


def sent(connection: Connection, claim: Claim, ids: Sequence[int]) -> None:
    """Delete rows whose broker has confirmed them; a row taken over meanwhile is left to its new owner."""
    ours = and_(among(connection, TABLE.c.id, BigInteger(), sorted(ids)), TABLE.c.owner == claim.owner)
    connection.execute(delete(TABLE).where(ours))


def refused(connection: Connection, claim: Claim, ids: Sequence[int], due_at: datetime, error: str) -> None:
    """Release rows that the broker refused; any relay sends them again when they are due."""
    ours = and_(TABLE.c.id.in_(sorted(ids)), TABLE.c.owner == claim.owner)
    later = {"owner": "", "due_at": due_at, "attempts": TABLE.c.attempts + 1, "error": error}
    connection.execute(update(TABLE).where(ours).values(**later))


def dead_letter(connection: Connection, claim: Claim, ids: Sequence[int], now: datetime, error: str) -> None:
    """Keep rows for an operator to retry or drop; rows behind them may be sent.

    Args:
        connection: the transaction.
        claim: their owner.
        ids: their numbers.
        now: aware.
        error: the broker's answer.
    """
    ours = and_(TABLE.c.id.in_(sorted(ids)), TABLE.c.owner == claim.owner)
    kept = {
        "owner": DEAD,
        "due_at": now + _KEPT_FOR,
        "attempts": TABLE.c.attempts + 1,
        "error": error,
    }
    connection.execute(update(TABLE).where(ours).values(**kept))


def any_due(connection: Connection, app: str, now: datetime) -> bool:
    """Return whether any row may be taken over; a plain read without locks."""
    return bool(connection.execute(select(due_exists(connection.dialect, app, now))).scalar_one())


def due_exists(dialect: Dialect, app: str, now: datetime) -> ColumnElement[bool]:
    """Return the condition of `any_due`."""
    return exists().where(TABLE.c.app == app, _due(dialect, now))


def _due(dialect: Dialect, now: datetime) -> ColumnElement[bool]:
    """Return, for a statement, whether a row is due by our clock and by the database's: ours may have jumped."""
    return and_(TABLE.c.due_at <= now, TABLE.c.due_at <= server_moment(dialect))


def take_over(
    connection: Connection, claim: Claim, now: datetime, limit: int, besides: Sequence[str] = ()
) -> list[Stored]:
    """Take over due rows, oldest first; returns them.

    A row behind a row of its key that has another owner or is not due again is left out.

    Args:
        connection: the transaction.
        claim: their new owner, and the end of its lease.
        now: aware.
        limit: maximum of rows.
        besides: topics that are left out.
    """
    older = TABLE.alias("older")
    waits = exists().where(
        older.c.app == TABLE.c.app,
        older.c.key == TABLE.c.key,
        older.c.topic == TABLE.c.topic,
        older.c.id < TABLE.c.id,
        older.c.due_at > now,
        older.c.owner != DEAD,
    )
    due = and_(TABLE.c.app == claim.app, _due(connection.dialect, now))
    if besides:
        due = and_(due, TABLE.c.topic.not_in(sorted(besides)))
    ids = list(
        connection.execute(select(TABLE.c.id).where(due, ~waits).order_by(TABLE.c.id).limit(limit)).scalars()
    )
    if not ids:
        return []
    # Another process may do the same: the process that waited for the row lock then finds the row not due.
    mine = update(TABLE).where(TABLE.c.id.in_(ids), due).values(owner=claim.owner, due_at=claim.due_at)
    connection.execute(mine)
    taken = and_(TABLE.c.id.in_(ids), TABLE.c.owner == claim.owner, TABLE.c.due_at == claim.due_at)
    return [_stored(row) for row in connection.execute(select(TABLE).where(taken).order_by(TABLE.c.id))]


def depth(connection: Connection, app: str) -> Depth:
    """Return the number of messages to be sent of an app."""
    dead = TABLE.c.owner == DEAD
    counts = select(
        func.count(case((~dead, 1))),
        func.min(case((~dead, TABLE.c.created_at))),
        func.count(case((~dead, TABLE.c.error))),
        func.count(case((dead, 1))),
    ).where(TABLE.c.app == app)
    row = connection.execute(counts).one()
    return Depth(row[0], row[1], row[2], row[3])


def of_key(connection: Connection, app: str, key: str) -> list[dict[str, object]]:
    """Return the messages to be sent for a key, oldest first; without bodies, of the headers only the trace."""
    names = ("consumer", "topic", "message_id", "created_at", "due_at", "attempts", "error", "headers")
    rows = select(*(TABLE.c[name] for name in names)).where(TABLE.c.app == app, TABLE.c.key == key)
    return [with_trace(row) for row in connection.execute(rows.order_by(TABLE.c.id)).mappings()]


def with_trace(row: RowMapping) -> dict[str, object]:
    """Return a row with the id of its trace instead of its headers."""
    shown = dict(row)
    headers = json.loads(shown.pop("headers"))
    return {**shown, **trace_of(headers)}


def _json(message: OutgoingMessage) -> str:
    due = {} if message.due_at is None else {DUE_AT: message.due_at.isoformat()}
    return json.dumps({**message.headers, **due})


def _stored(row: object) -> Stored:
    columns = row._mapping  # type: ignore[attr-defined]
    headers = json.loads(columns["headers"])
    due = headers.pop(DUE_AT, None)
    message = OutgoingMessage(
        bytes(columns["body"]),
        headers,
        columns["key"],
        columns["message_id"],
        due_at=None if due is None else datetime.fromisoformat(due),
        timer=due is not None,
    )
    return Stored(columns["id"], columns["topic"], message, columns["attempts"])
