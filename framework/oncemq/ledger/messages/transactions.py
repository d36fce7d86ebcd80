"""Outcomes of transactional messages, which a broker holds until it learns the outcome: only this row decides.

The row is the first write of such a transaction, and is committed with it. A check that finds no row writes a row
that says *rolled back*: from then on the transaction cannot commit. So both answers are final, and the second of the
two – transaction or check – waits for the row of the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlalchemy import Boolean, Column, Connection, Index, delete, insert, select, text, update

from oncemq.ledger.sql.column_types import ExactText, LongText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

TABLE = ledger_table(
    "transactions",
    Column("id", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("app", ExactText(CONSUMER_SIZE), nullable=False),
    Column("topic", ExactText(CONSUMER_SIZE), nullable=False),
    Column("committed", Boolean, nullable=False),
    Column("place", LongText, nullable=False),
    Column("due_at", Moment),
    Column("decided_at", Moment, nullable=False),
    Index("oncemq_transactions_due", "app", "due_at"),
    Index("oncemq_transactions_age", "app", "decided_at"),
)

OWN_ID = "ledger"
"""This row's place identifies the ledger."""
_NO_ONE_YET = ""
_ASKING_MAY_WAIT = "1s"
"""An open transaction holds its row; a check then fails and is repeated later."""


@dataclass(frozen=True, slots=True)
class Unsent:
    """A committed transaction whose broker may not have been notified.

    Args:
        id: the transaction's.
        topic: the topic's name in the app.
        place: where the broker holds the message, in the adapter's own format.
    """

    id: str
    topic: str
    place: str


def ledger_id(connection: Connection, now: datetime) -> str:
    """Return the ledger's unique id, created on first use."""
    row = _row(OWN_ID, _NO_ONE_YET, _NO_ONE_YET, uuid4().hex, now, None, committed=True)
    upsert(connection, TABLE, row, {"place": TABLE.c.place})
    return str(connection.execute(select(TABLE.c.place).where(TABLE.c.id == OWN_ID)).scalar_one())


def commit(connection: Connection, app: str, unsent: Unsent, now: datetime, due_at: datetime) -> None:
    """Record, in its own transaction, that a transaction is committed.

    Args:
        connection: the transaction that the message depends on.
        app: the app's name.
        unsent: the transaction.
        now: aware.
        due_at: from then on other processes may notify the broker, aware.

    Raises:
        IntegrityError: a check came first and was answered with *rolled back*.
    """
    row = _row(unsent.id, app, unsent.topic, unsent.place, now, due_at, committed=True)
    connection.execute(insert(TABLE).values(**row))


def still_ours(connection: Connection, transaction: str, due_at: datetime) -> None:
    """Postpone the moment from which other processes may notify the broker."""
    connection.execute(update(TABLE).where(TABLE.c.id == transaction).values(due_at=due_at))


def decide(connection: Connection, app: str, transaction: str, now: datetime) -> bool:
    """Return whether a transaction is committed; if it is not by now, it never will be.

    Raises:
        DBAPIError: it is still open.
    """
    known = select(TABLE.c.committed).where(TABLE.c.id == transaction)
    found = connection.execute(known).scalar()
    if found is None:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{_ASKING_MAY_WAIT}'"))
        row = _row(transaction, app, _NO_ONE_YET, _NO_ONE_YET, now, None, committed=False)
        upsert(connection, TABLE, row, {"id": TABLE.c.id})
        found = connection.execute(known).scalar_one()
    return bool(found)


def sent(connection: Connection, transactions: Sequence[str]) -> None:
    """Record that the broker has been notified of these."""
    done = update(TABLE).where(TABLE.c.id.in_(sorted(transactions))).values(due_at=None)
    connection.execute(done)


def any_due(connection: Connection, app: str, now: datetime) -> bool:
    """Return whether any row may be taken over; a plain read without locks."""
    due = (TABLE.c.app == app) & (TABLE.c.due_at <= now)
    return connection.execute(select(TABLE.c.id).where(due).limit(1)).first() is not None


def take_over(
    connection: Connection, app: str, now: datetime, due_at: datetime, limit: int
) -> Sequence[Unsent]:
    """Return the transactions whose broker was not notified in time; they are ours until `due_at`."""
    due = (TABLE.c.app == app) & (TABLE.c.due_at <= now)
    taken = []
    for row in connection.execute(select(TABLE).where(due).order_by(TABLE.c.due_at).limit(limit)).all():
        mine = update(TABLE).where(TABLE.c.id == row.id, TABLE.c.due_at <= now).values(due_at=due_at)
        if connection.execute(mine).rowcount == 1:
            taken.append(Unsent(row.id, row.topic, row.place))
    return taken


def purge(connection: Connection, app: str, before: datetime, limit: int) -> int:
    """Delete outcomes decided before a moment that need no notification, at most `limit`; returns how many."""
    old = (TABLE.c.app == app) & (TABLE.c.decided_at < before) & TABLE.c.due_at.is_(None)
    ids = connection.execute(select(TABLE.c.id).where(old).limit(limit)).scalars().all()
    if ids:
        connection.execute(delete(TABLE).where(TABLE.c.id.in_(ids), TABLE.c.due_at.is_(None)))
    return len(ids)


def _row(
    transaction: str,
    app: str,
    topic: str,
    place: str,
    now: datetime,
    due_at: datetime | None,
    *,
    committed: bool,
) -> dict[str, object]:
    return {
        "id": transaction,
        "app": app,
        "topic": topic,
        "place": place,
        "committed": committed,
        "due_at": due_at,
        "decided_at": now,
    }
