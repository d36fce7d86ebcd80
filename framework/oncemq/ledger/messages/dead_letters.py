"""Dead letters that no broker accepts, such as those over its size limit: stored whole until replayed or purged."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Identity,
    Index,
    Integer,
    Row,
    delete,
    func,
    insert,
    select,
)

from oncemq.contracts.adapter import DeadLetter
from oncemq.ledger.messages.parked_row import packed, unpacked
from oncemq.ledger.sql.column_types import Bytes, ExactText, LongText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.message.envelope import Message

TABLE = ledger_table(
    "dead_letters",
    # SQLite assigns numbers only to a column whose type is INTEGER.
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("topic", ExactText(CONSUMER_SIZE), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column(
        "envelope", LongText, nullable=False
    ),  # message id, headers, the broker's keys and raw form, as JSON
    Column("body", Bytes, nullable=False),
    Column("published_at", Moment),
    Column("first_failed_at", Moment),
    Column("dead_at", Moment, nullable=False),
    Index("oncemq_dead_letters_consumer", "consumer", "id"),
)
_T = TABLE.c

ID_PREFIX = "ledger-"
"""Prefix of a row's number: commands tell such a letter from a broker's by it."""

_PARTS = (64, 512)
"""Rows that are read at once: a page wants the first few of millions, a count by error many."""
_HEAD = tuple(column for column in TABLE.c if column.name != "body")


def add(
    connection: Connection, consumer: str, message: Message, headers: Mapping[str, str], at: datetime
) -> None:
    """Store a message; `headers` say why it is dead.

    Args:
        connection: the transaction.
        consumer: the ledger scope.
        message: as it was delivered.
        headers: ours, as on a dead letter on the broker.
        at: when it became a dead letter.
    """
    row = {
        "consumer": consumer,
        "topic": message.topic,
        "attempt": message.attempt,
        "envelope": packed(message, headers),
        "body": message.body,
        "published_at": message.published_at,
        "first_failed_at": message.first_failed_at,
        "dead_at": at,
    }
    connection.execute(insert(TABLE).values(row))


def letters(
    connection: Connection,
    consumer: str,
    ids: Collection[str] | None = None,
    *,
    after: str | None = None,
    topic: str | None = None,
) -> Iterator[DeadLetter]:
    """Yield the dead letters of a consumer, oldest first; only one is in memory at a time.

    Those that are stored after the first was yielded are not among them. Their numbers are read in parts: a page shows the
    first few of millions.

    Args:
        connection: for reading.
        consumer: the ledger scope.
        ids: only these, which are looked up; None = all.
        after: only those behind this one, which need not exist any more.
        topic: only those of this topic; None = all.
    """
    for number in chain.from_iterable(_parts(connection, _mine(consumer, topic), (_T.id,), ids, after)):
        row = connection.execute(select(TABLE).where(_T.id == number.id)).one_or_none()
        if row is not None:
            yield _letter(row, row.body)


def heads(
    connection: Connection,
    consumer: str,
    ids: Collection[str] | None = None,
    *,
    after: str | None = None,
    topic: str | None = None,
    whole: Callable[[Mapping[str, str]], bool],
) -> Iterator[DeadLetter]:
    """Yield the dead letters of a consumer with empty bodies, oldest first: many of them in one statement, a few in memory.

    Args:
        connection: for reading.
        consumer: the ledger scope.
        ids: only these, which are looked up; None = all.
        after: only those behind this one, which need not exist any more.
        topic: only those of this topic; None = all.
        whole: whether one with these headers is to have its body.
    """
    for row in chain.from_iterable(_parts(connection, _mine(consumer, topic), _HEAD, ids, after)):
        letter = _letter(row, b"")
        if whole(letter.message.headers):
            body = connection.scalar(select(_T.body).where(_T.id == row.id))
            letter = _letter(row, body or b"")
        yield letter


def _parts(
    connection: Connection,
    mine: ColumnElement[bool],
    columns: Sequence[Column[Any]],
    ids: Collection[str] | None,
    after: str | None,
) -> Iterator[Sequence[Row[Any]]]:
    if ids is not None:
        mine &= _T.id.in_(_numbers_of(ids))
    last = connection.scalar(select(func.max(_T.id)).where(mine))
    done = max(_numbers_of([after or ""]), default=-1)
    for size in chain(_PARTS, repeat(_PARTS[-1])):
        if last is None or done >= last:
            return
        some = select(*columns).where(mine, _T.id > done, _T.id <= last).order_by(_T.id).limit(size)
        part = connection.execute(some).all()
        yield part
        done = part[-1].id if len(part) == size else last


def _letter(row: Any, body: bytes) -> DeadLetter:
    return DeadLetter(f"{ID_PREFIX}{row.id}", unpacked(row, body), row.dead_at)


def count(connection: Connection, consumer: str, topic: str | None = None) -> int:
    """Return how many dead letters of a consumer are kept here, of one topic or all."""
    found = connection.scalar(select(func.count()).select_from(TABLE).where(_mine(consumer, topic)))
    return int(found or 0)


def _mine(consumer: str, topic: str | None) -> ColumnElement[bool]:
    mine = _T.consumer == consumer
    return mine if topic is None else mine & (_T.topic == topic)


def remove(connection: Connection, consumer: str, ids: Collection[str]) -> int:
    """Delete dead letters; returns how many there were."""
    ours = (_T.consumer == consumer) & _T.id.in_(_numbers_of(ids))
    return int(connection.execute(delete(TABLE).where(ours)).rowcount)


def _numbers_of(ids: Collection[str]) -> list[int]:
    found = {int(number) for name in ids if (number := name.removeprefix(ID_PREFIX)).isdecimal()}
    return sorted(number for number in found if number < 2**63)
