"""Parked messages: stored whole in the ledger, in the transaction that decided to park them.

A row that waits for its turn has no `due_at`. The worker that gives it its turn sets `due_at` a few seconds ahead,
takes the message at once, and deletes the row in the transaction that applies it; if the worker dies instead, the
row becomes due and any worker takes it. So `due_at` is a lease, and its value the token that settling compares.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Identity,
    Index,
    Integer,
    LargeBinary,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.messages.parked_row import Parked, headers_of, packed, parked_of, values_of
from oncemq.ledger.sql.column_types import ExactText, LongText, Moment
from oncemq.ledger.sql.in_values import not_among
from oncemq.ledger.sql.row_locks import can_skip_locked
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table
from oncemq.message.envelope import Message
from oncemq.message.headers import trace_of

TABLE = ledger_table(
    "parked",
    # SQLite assigns numbers only to a column whose type is INTEGER.
    Column(
        "id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, autoincrement=True
    ),
    Column("consumer", ExactText(CONSUMER_SIZE), nullable=False),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("identity", ExactText(KEY_SIZE), nullable=False),
    Column("number", BigInteger),  # its position in its key's order, if it has one
    Column("held", Boolean, nullable=False),  # waits for earlier messages of its key, or is the first of them
    Column("topic", ExactText(CONSUMER_SIZE), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("envelope", LongText, nullable=False),  # message id, headers and the broker's keys as JSON
    Column("body", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False),
    Column("published_at", Moment),
    Column("first_failed_at", Moment),
    Column("parked_at", Moment, nullable=False),
    Column("due_at", Moment),
    Column("reason", LongText, nullable=False),
    Index("oncemq_parked_key", "consumer", "key", "number"),
    Index("oncemq_parked_due", "consumer", "due_at"),
)
_T = TABLE.c
DEAD: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""`due_at` of dead letters that hold their keys, see `oncemq.ledger.messages.held_letters`: no process takes them."""
HELD_AT_ONCE: Final = 32
"""The most messages of a key taken together: when one fails, those behind it were taken needlessly."""
_HELD_KEYS = (
    select(_T.key)
    .distinct()
    .where(_T.consumer == bindparam("consumer"), _T.held, _T.key.in_(bindparam("keys", expanding=True)))
)
_HELD_KEYS_OF_ARRAY = (
    select(_T.key)
    .distinct()
    .where(
        _T.consumer == bindparam("consumer"),
        _T.held,
        _T.key.in_(select(func.unnest(bindparam("keys", type_=ARRAY(TEXT))))),
    )
)


def add(connection: Connection, consumer: str, rows: Sequence[Parked]) -> None:
    """Store messages, in this order."""
    if rows:
        connection.execute(insert(TABLE), [values_of(consumer, row) for row in rows])


def waiting(connection: Connection, consumer: str, keys: Collection[str]) -> dict[str, list[str]]:
    """Return the parked identities by key, one for each message."""
    found: dict[str, list[str]] = {}
    for key, identity in connection.execute(
        select(_T.key, _T.identity).where(*_of(connection, consumer, keys))
    ):
        found.setdefault(key, []).append(identity)
    return found


def messages(connection: Connection, consumer: str, key: str, identity: str) -> list[Message]:
    """Return the parked messages of one identity of a key."""
    same = (_T.consumer == consumer) & (_T.key == key) & (_T.identity == identity)
    return [parked_of(row).message for row in connection.execute(select(TABLE).where(same))]


def turns(connection: Connection, consumer: str, reached: Mapping[str, int | None], most: int) -> list[int]:
    """Return the rows whose turn has come, in order: those numbered from `reached` on without a gap.

    Args:
        connection: the transaction, which holds a lock on each of the keys.
        consumer: the ledger scope.
        reached: the last number applied by key; None = all rows without a number.
        most: maximum of rows per key; the rest get their turn when the last of them is done.
    """
    waiting = select(_T.id, _T.key, _T.number).where(*_of(connection, consumer, reached), ~_T.held)
    expected = dict(reached)
    found: list[int] = []
    taken: dict[str, int] = {}
    for id_, key, number in connection.execute(waiting.order_by(_T.key, _T.number, _T.id)):
        last = expected[key]
        # Lower numbers are released, too: they are stale or copies.
        fits = number is None if last is None else number is not None and number <= last + 1
        if fits and taken.get(key, 0) < most:
            found.append(id_)
            taken[key] = taken.get(key, 0) + 1
            expected[key] = number if last is None else max(last, number)
    return found


def lowest(connection: Connection, consumer: str, keys: Collection[str]) -> dict[str, int]:
    """Return the lowest parked number of each key, of those that have one."""
    rows = select(_T.key, func.min(_T.number)).where(*_of(connection, consumer, keys), _T.number.is_not(None))
    return {key: int(number) for key, number in connection.execute(rows.group_by(_T.key))}


def held(
    connection: Connection, consumer: str, keys: Collection[str], most: int, *, until_dead: bool = False
) -> dict[str, list[int]]:
    """Return the first held rows by key, in order of arrival; at most `most` per key.

    Args:
        connection: the transaction.
        consumer: the ledger scope.
        keys: the only keys that are queried.
        most: maximum of rows per key.
        until_dead: only those before the key's first dead letter: the ones that may have their turn.
    """
    # Every unit asks, and mostly there are none: a prepared plain statement finds out.
    some = _HELD_KEYS_OF_ARRAY if connection.dialect.name == "postgresql" else _HELD_KEYS
    keys = connection.execute(some, {"consumer": consumer, "keys": sorted(keys)}).scalars().all()
    found: dict[str, list[int]] = {}
    if not keys:
        return found
    place = func.row_number().over(partition_by=_T.key, order_by=_T.id).label("place")
    mine = (*_of(connection, consumer, keys), _T.held)
    waiting = select(_T.key, _T.id, _T.due_at, place).where(*mine).subquery()
    first = select(waiting.c.key, waiting.c.id, waiting.c.due_at).where(waiting.c.place <= most)
    stopped = set[str]()
    for key, id_, due_at in connection.execute(first.order_by(waiting.c.id)):
        if until_dead and due_at == DEAD:
            stopped.add(key)
        if key not in stopped:
            found.setdefault(key, []).append(id_)
    return found


def lock(connection: Connection, ids: Collection[int]) -> set[int]:
    """Lock these rows until the transaction ends, in order; returns those that still exist."""
    if not ids:
        return set()
    rows = select(_T.id).where(_T.id.in_(sorted(ids))).order_by(_T.id).with_for_update()
    return set(connection.execute(rows).scalars())


def remove(connection: Connection, ids: Collection[int]) -> None:
    """Delete rows whose messages are settled."""
    if ids:
        connection.execute(delete(TABLE).where(_T.id.in_(sorted(ids))))


def due(
    connection: Connection,
    consumer: str,
    now: datetime,
    limit: int,
    besides: Collection[int] = (),
    topic: str | None = None,
) -> list[int]:
    """Lock rows that are due by our clock and by the database's, skipping locked ones, `besides`, and those of other topics."""
    over = _over(connection.dialect, now)
    rows = select(_T.id).where(*in_topic(consumer, topic), over).order_by(_T.due_at, _T.id)
    if besides:
        rows = rows.where(not_among(connection, _T.id, BigInteger(), sorted(besides)))
    rows = rows.limit(limit).with_for_update(skip_locked=can_skip_locked(connection))
    return list(connection.execute(rows).scalars())


def due_exists(
    dialect: Dialect, consumer: str, now: datetime, topic: str | None = None
) -> ColumnElement[bool]:
    """Return the condition under which `due` may find rows."""
    return exists().where(*in_topic(consumer, topic), _over(dialect, now))


def in_other_topics(connection: Connection, ids: Collection[int], topic: str) -> list[int]:
    """Return those of these rows whose messages came by other topics."""
    if not ids:
        return []
    rows = select(_T.id).where(_T.id.in_(sorted(ids)), _T.topic != topic)
    return list(connection.execute(rows).scalars())


def _over(dialect: Dialect, now: datetime) -> ColumnElement[bool]:
    return and_(_T.due_at <= now, _T.due_at <= server_moment(dialect))


def take(connection: Connection, ids: Sequence[int], until: datetime) -> list[Parked]:
    """Lease rows until `until` and return them, each key's in order; deleted rows are left out."""
    if not ids:
        return []
    connection.execute(update(TABLE).where(_T.id.in_(sorted(ids))).values(due_at=until))
    rows = select(TABLE).where(_T.id.in_(sorted(ids))).order_by(_T.key, _T.held, _T.number, _T.id)
    return [parked_of(row) for row in connection.execute(rows)]


def postpone(connection: Connection, ids: Collection[int], due_at: datetime | None) -> None:
    """Park rows again: until they get their turn, or until `due_at`."""
    if ids:
        connection.execute(update(TABLE).where(_T.id.in_(sorted(ids))).values(due_at=due_at))


def wake(connection: Connection, ids: Collection[int], now: datetime, leased_until: datetime) -> None:
    """Make rows due that wait for longer than a lease lasts: those that are leased become due by themselves."""
    if ids:
        waits = _T.due_at.is_(None) | (_T.due_at > leased_until)
        connection.execute(update(TABLE).where(_T.id.in_(sorted(ids)), waits).values(due_at=now))


def wait_behind(connection: Connection, ids: Collection[int]) -> None:
    """Park rows again until the messages before them are done.

    A row that waits for its own turn by now keeps that: no message before it would ever release it.
    """
    if ids:
        held = update(TABLE).where(_T.id.in_(sorted(ids)), _T.held)
        connection.execute(held.values(due_at=None))


def place(
    connection: Connection, id_: int, number: int | None, due_at: datetime | None, since: datetime, why: str
) -> None:
    """Let a held row wait for its own turn, from `since` on."""
    values = {"held": False, "number": number, "due_at": due_at, "parked_at": since, "reason": why}
    connection.execute(update(TABLE).where(_T.id == id_).values(**values))


def renew(
    connection: Connection,
    id_: int,
    token: datetime | None,
    due_at: datetime | None,
    message: Message | None = None,
    *,
    free: bool = False,
) -> bool:
    """Set `due_at` and the message's changes, if the row is still ours.

    Args:
        connection: the transaction.
        id_: the row.
        token: `due_at` at the time when we took the message.
        due_at: the new one.
        message: with its new attempt, headers and first failure; None = as it was.
        free: no message waits behind it any more.
    """
    values: dict[str, Any] = {"due_at": due_at}
    if free:
        values["held"] = False
    if message is not None:
        values |= {
            "attempt": message.attempt,
            "envelope": packed(message),
            "first_failed_at": message.first_failed_at,
        }
    same = _T.due_at.is_(None) if token is None else _T.due_at == token
    changed = connection.execute(update(TABLE).where(_T.id == id_, same).values(**values))
    return changed.rowcount == 1


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the parked messages of a key, of every consumer, in order; without bodies, of the headers only the trace."""
    shown = [
        _T.consumer,
        _T.id,
        _T.held,
        _T.topic,
        _T.key,
        _T.number,
        _T.identity,
        _T.attempt,
        _T.parked_at,
        _T.due_at,
        _T.reason,
        _T.envelope,
    ]
    rows = select(*shown).where(_T.key == key, alive()).order_by(_T.consumer, _T.number, _T.id)
    return [_with_trace(dict(row)) for row in connection.execute(rows).mappings()]


def _with_trace(row: dict[str, object]) -> dict[str, object]:
    headers = headers_of(str(row.pop("envelope")))
    return {**row, **trace_of(headers)}


def listed(
    connection: Connection, consumer: str, limit: int, topic: str | None = None
) -> list[dict[str, object]]:
    """Return a consumer's parked messages, of one topic or all, the longest waiting first; without bodies."""
    shown = [_T.key, _T.number, _T.identity, _T.attempt, _T.parked_at, _T.due_at, _T.reason]
    mine = (*in_topic(consumer, topic), alive())
    rows = select(*shown).where(*mine).order_by(_T.parked_at, _T.id).limit(limit)
    return [dict(row) for row in connection.execute(rows).mappings()]


def numbers(connection: Connection, consumer: str, key: str) -> list[tuple[int, int]]:
    """Return the parked numbers of a key as spans, both ends included, in order."""
    mine = (_T.consumer == consumer) & (_T.key == key) & _T.number.is_not(None)
    spans: list[tuple[int, int]] = []
    for number in connection.execute(select(_T.number).where(mine).order_by(_T.number)).scalars():
        if spans and number <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def count(connection: Connection, consumer: str, topic: str | None = None) -> int:
    """Return the number of parked messages of a consumer, of one topic or all; without dead letters that hold keys."""
    rows = select(func.count()).select_from(TABLE).where(*in_topic(consumer, topic), alive())
    return int(connection.execute(rows).scalar_one())


def besides(connection: Connection, consumer: str, topics: Collection[str]) -> dict[str, int]:
    """Return the number of a consumer's parked messages of other topics than these, by topic."""
    rows = select(_T.topic, func.count()).where(_T.consumer == consumer, _T.topic.not_in(sorted(topics)))
    return {topic: int(count) for topic, count in connection.execute(rows.group_by(_T.topic))}


def alive() -> ColumnElement[bool]:
    """Return the condition of rows that wait for their turn: no dead letters."""
    return _T.due_at.is_(None) | (_T.due_at < DEAD)


def in_topic(consumer: str, topic: str | None) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a consumer's rows, of one topic or all."""
    mine = _T.consumer == consumer
    return (mine,) if topic is None else (mine, _T.topic == topic)


def _of(connection: Connection, consumer: str, keys: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    if connection.dialect.name == "postgresql":
        # One parameter for any number of keys, so that only one statement is prepared.
        some = select(func.unnest(bindparam("keys", sorted(keys), type_=ARRAY(TEXT))))
        return _T.consumer == consumer, _T.key.in_(some)
    return _T.consumer == consumer, _T.key.in_(sorted(keys))
