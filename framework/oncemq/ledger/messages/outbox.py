"""Messages that handlers published: stored in the handler's transaction, deleted when their broker has confirmed them.

Who may send a row: its `owner`, until `due_at`. The process that stored it is the first owner; when it has died, or
the broker refused the message, the row is due one day and whoever relays takes it over. A row may be sent only while
no older row of its app, topic and key is there, which holds the order of a key over any number of processes: a row
is gone once its broker has confirmed it, so what is still there has not been sent.
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
    Index,
    Integer,
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
from oncemq.ledger.sql.column_types import Bytes, ExactText, LongText, Moment
from oncemq.ledger.sql.in_values import among
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table
from oncemq.message.envelope import OutgoingMessage

TABLE = ledger_table(
    "outbox",
    # SQLite counts by itself only in a column that is called INTEGER; and numbers of deleted rows must not come again.
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
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
"""The owner of rows that are kept for a person: never sent by themselves, and no other row waits for them."""

_KEPT_FOR = timedelta(days=365 * 1000)
"""A dead row is not due within any time that matters, also for processes of an earlier version."""

_ARRAYS = ("topics", "keys", "message_ids", "headers")
_FROM_ARRAYS = text(
    f"INSERT INTO {TABLE.name} (app, consumer, topic, key, message_id, headers, body, created_at, owner, due_at, attempts)"  # noqa: S608 - our own names
    " SELECT :app, :consumer, r.topic, r.key, r.message_id, r.headers, r.body, :now, :owner, :due_at, 0 FROM unnest("
    + ", ".join(f"CAST(:{name} AS text[])" for name in _ARRAYS)
    + ", CAST(:bodies AS bytea[])) WITH ORDINALITY AS r(topic, key, message_id, headers, body, position)"
    " ORDER BY r.position RETURNING id"
)
"""All rows in one statement for PostgreSQL, numbered in the order in which they were published."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose rows are meant, and until when they are his alone.

    Args:
        app: the app's name.
        owner: a token that nobody else has.
        due_at: from then on anybody may take the rows over; aware.
    """

    app: str
    owner: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Stored:
    """One row that somebody owns.

    Args:
        id: its number; higher ones were published later.
        topic: the topic's name in the app.
        message: what is to be sent.
        attempts: how often it has been refused.
    """

    id: int
    topic: str
    message: OutgoingMessage = field(repr=False)
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Depth:
    """How much waits to be sent.

    Args:
        messages: how many; sent and not yet confirmed ones included.
        oldest: when the oldest was published, aware; None while nothing waits.
        refused: how many of them have been refused at least once.
        dead: how many besides are kept for a person, since their broker had no place for them.
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
        claim: whose they are.
        consumer: the ledger scope of who published them.
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
        "topics": [topic for topic, _ in messages],
        "keys": [message.key for _, message in messages],
        "message_ids": [message.message_id for _, message in messages],
        "headers": [_json(message) for _, message in messages],
        "bodies": [message.body for _, message in messages],
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
    # MySQL tells the number of the first row only, and the others need not follow without gaps.
    first = connection.execute(insert(TABLE).values(rows)).lastrowid
    ours = select(TABLE.c.id).where(TABLE.c.id >= first, TABLE.c.owner == claim.owner)
    return connection.execute(ours.order_by(TABLE.c.id).limit(len(rows))).scalars()


def sent(connection: Connection, claim: Claim, ids: Sequence[int]) -> None:
    """Delete rows whose broker has confirmed them; those that somebody took over meanwhile are his to delete."""
    ours = and_(among(connection, TABLE.c.id, BigInteger(), sorted(ids)), TABLE.c.owner == claim.owner)
    connection.execute(delete(TABLE).where(ours))


def refused(connection: Connection, claim: Claim, ids: Sequence[int], due_at: datetime, error: str) -> None:
    """Give rows up that the broker did not take; whoever relays tries them again when they are due."""
    ours = and_(TABLE.c.id.in_(sorted(ids)), TABLE.c.owner == claim.owner)
    later = {"owner": "", "due_at": due_at, "attempts": TABLE.c.attempts + 1, "error": error}
    connection.execute(update(TABLE).where(ours).values(**later))


def dead_letter(connection: Connection, claim: Claim, ids: Sequence[int], now: datetime, error: str) -> None:
    """Keep rows for a person, who retries or drops them; what waits behind them may be sent.

    Args:
        connection: the transaction.
        claim: whose rows they are.
        ids: their numbers.
        now: aware.
        error: what the broker said.
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
    """Return whether anything may be taken over; for reading, so that a look costs no lock."""
    due = select(TABLE.c.id).where(TABLE.c.app == app, _due(connection, now))
    return connection.execute(due.limit(1)).first() is not None


def _due(connection: Connection, now: datetime) -> ColumnElement[bool]:
    """Return, for a statement, whether a row is due by our clock and by the database's: ours may have jumped."""
    return and_(TABLE.c.due_at <= now, TABLE.c.due_at <= server_moment(connection.dialect))


def take_over(
    connection: Connection, claim: Claim, now: datetime, limit: int, besides: Sequence[str] = ()
) -> list[Stored]:
    """Make rows ours that are due, oldest first; returns them.

    Rows behind one of their key that somebody else still owns, or that is not due again, stay where they are.

    Args:
        connection: the transaction.
        claim: whose they become, and until when.
        now: aware.
        limit: the most rows.
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
    due = and_(TABLE.c.app == claim.app, _due(connection, now))
    if besides:
        due = and_(due, TABLE.c.topic.not_in(sorted(besides)))
    ids = list(
        connection.execute(select(TABLE.c.id).where(due, ~waits).order_by(TABLE.c.id).limit(limit)).scalars()
    )
    if not ids:
        return []
    # Another process may be doing the same: the one that waits for the row's lock finds that it is not due any more.
    mine = update(TABLE).where(TABLE.c.id.in_(ids), due).values(owner=claim.owner, due_at=claim.due_at)
    connection.execute(mine)
    taken = and_(TABLE.c.id.in_(ids), TABLE.c.owner == claim.owner, TABLE.c.due_at == claim.due_at)
    return [_stored(row) for row in connection.execute(select(TABLE).where(taken).order_by(TABLE.c.id))]


def depth(connection: Connection, app: str) -> Depth:
    """Return how much of an app waits to be sent."""
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
    """Return what waits to be sent for a key, oldest first; without bodies and headers."""
    names = ("consumer", "topic", "message_id", "created_at", "due_at", "attempts", "error")
    rows = select(*(TABLE.c[name] for name in names)).where(TABLE.c.app == app, TABLE.c.key == key)
    return [dict(row) for row in connection.execute(rows.order_by(TABLE.c.id)).mappings()]


def _json(message: OutgoingMessage) -> str:
    return json.dumps(dict(message.headers))


def _stored(row: object) -> Stored:
    columns = row._mapping  # type: ignore[attr-defined]
    message = OutgoingMessage(
        bytes(columns["body"]), json.loads(columns["headers"]), columns["key"], columns["message_id"]
    )
    return Stored(columns["id"], columns["topic"], message, columns["attempts"])
