"""Dead letters that hold their keys: parked rows that no process takes, until a person replays or purges them.

Such a row is held and at its place in its key's order, so what comes later waits behind it as behind a message that is retried.
One transaction makes a row a dead letter, one sets it going again or removes it: there is no moment at which a process could die and
leave a dead letter without its hold, or a hold without its dead letter.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update

from oncemq.contracts.adapter import DeadLetter
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.messages.parked_row import packed, parked_of
from oncemq.ledger.messages.parking import DEAD, HELD_AT_ONCE, TABLE, alive, held, in_topic, postpone
from oncemq.ledger.records.row_mutexes import lock_keys
from oncemq.message import headers as names
from oncemq.message.envelope import Message

_T = TABLE.c

ID_PREFIX: Final = "held-"
"""Prefix of a row's number: commands tell such a letter from others by it."""
_PART: Final = 64


def lock(connection: Connection, consumer: str, keys: Collection[str], at: datetime) -> None:
    """Hold the mutex of keys whose messages wait for each other, until the transaction ends."""
    lock_keys(connection, f"{consumer} held", sorted(keys), at=at)


def id_of(number: int) -> str:
    """Return the id by which people name the dead letter of this row."""
    return f"{ID_PREFIX}{number}"


def first_of(connection: Connection, consumer: str, keys: Collection[str]) -> dict[str, int]:
    """Return the first dead letter of each of these keys that has one."""
    rows = select(_T.key, func.min(_T.id)).where(*_dead(consumer), _T.key.in_(sorted(keys)))
    return {key: int(number) for key, number in connection.execute(rows.group_by(_T.key))}


def waiting(connection: Connection, consumer: str, keys: Collection[str]) -> dict[str, int]:
    """Return how many messages of each key wait for earlier ones, dead letters not counted."""
    behind = (_T.consumer == consumer, _T.held, alive(), _T.key.in_(sorted(keys)))
    rows = select(_T.key, func.count()).where(*behind).group_by(_T.key)
    return {key: int(count) for key, count in connection.execute(rows)}


def mark(connection: Connection, number: int, token: datetime | None, message: Message, why: str) -> bool:
    """Make a parked message a dead letter at its place, if its row is still ours; `message` has the headers that say why."""
    same = _T.due_at.is_(None) if token is None else _T.due_at == token
    values = {
        "held": True,
        "due_at": DEAD,
        "reason": why,
        "attempt": message.attempt,
        "envelope": packed(message),
        "first_failed_at": message.first_failed_at,
    }
    changed = connection.execute(update(TABLE).where(_T.id == number, same).values(**values))
    return changed.rowcount == 1


def revive(connection: Connection, consumer: str, wanted: str) -> bool:
    """Let a dead letter run again at its place, with fresh attempts; returns whether it was there."""
    now = server_time(connection)
    row = _locked(connection, consumer, wanted, now)
    if row is None:
        return False
    message = parked_of(row).message
    again = replace(message, headers=names.for_replay(message.headers), attempt=1, first_failed_at=None)
    values = {"due_at": now, "attempt": 1, "envelope": packed(again), "first_failed_at": None}
    connection.execute(update(TABLE).where(_T.id == row.id).values(reason="replayed", **values))
    return True


def remove(connection: Connection, consumer: str, wanted: str) -> bool:
    """Delete a dead letter and let those go that waited for it; returns whether it was there."""
    now = server_time(connection)
    row = _locked(connection, consumer, wanted, now)
    if row is None:
        return False
    was_first = held(connection, consumer, [row.key], 1)[row.key] == [row.id]
    connection.execute(delete(TABLE).where(_T.id == row.id))
    if was_first:
        left = held(connection, consumer, [row.key], HELD_AT_ONCE, until_dead=True)
        postpone(connection, left.get(row.key, ()), now)
    return True


def _locked(connection: Connection, consumer: str, wanted: str, now: datetime) -> Row[Any] | None:
    number = wanted.removeprefix(ID_PREFIX)
    if not (wanted.startswith(ID_PREFIX) and number.isdecimal() and int(number) < 2**63):
        return None
    this = (*_dead(consumer), _T.id == int(number))
    key = connection.execute(select(_T.key).where(*this)).scalar()
    if key is None:
        return None
    lock(connection, consumer, [key], now)
    return connection.execute(select(TABLE).where(*this).with_for_update()).one_or_none()


def letters(
    connection: Connection,
    consumer: str,
    ids: Collection[str] | None = None,
    *,
    after: str | None = None,
    topic: str | None = None,
) -> Iterator[DeadLetter]:
    """Yield the dead letters of a consumer that hold keys, in their order; a few are in memory.

    Args:
        connection: for reading.
        consumer: the ledger scope.
        ids: only these; None = all.
        after: only those behind this one, which need not exist any more.
        topic: only those of this topic; None = all.
    """
    mine = [*_dead(consumer), *in_topic(consumer, topic)]
    if ids is not None:
        mine.append(_T.id.in_(_numbers(ids)))
    last = max(_numbers([after or ""]), default=-1)
    while rows := connection.execute(
        select(TABLE).where(*mine, _T.id > last).order_by(_T.id).limit(_PART)
    ).all():
        yield from map(_letter, rows)
        last = rows[-1].id


def _letter(row: Row[Any]) -> DeadLetter:
    message = parked_of(row).message
    died = names.time_of(message.headers, names.LAST_FAILED_AT)
    return DeadLetter(id_of(row.id), message, died or row.parked_at)


def count(connection: Connection, consumer: str, topic: str | None = None) -> int:
    """Return how many dead letters of a consumer hold keys."""
    rows = select(func.count()).select_from(TABLE).where(*_dead(consumer), *in_topic(consumer, topic))
    return int(connection.execute(rows).scalar_one())


def keys(connection: Connection, consumer: str, topic: str | None = None) -> int:
    """Return how many keys are held by dead letters."""
    rows = select(func.count(_T.key.distinct())).where(*_dead(consumer), *in_topic(consumer, topic))
    return int(connection.execute(rows).scalar_one())


def waits_for(connection: Connection, key: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Return a function that tells for which dead letter a parked row of this key waits; None for none."""
    rows = select(_T.consumer, func.min(_T.id)).where(_T.due_at == DEAD, _T.key == key).group_by(_T.consumer)
    first = {consumer: int(number) for consumer, number in connection.execute(rows)}

    def found(row: Mapping[str, Any]) -> str | None:
        number = first.get(row["consumer"])
        return None if number is None or (row["held"] and row["id"] < number) else id_of(number)

    return found


def _dead(consumer: str) -> tuple[ColumnElement[bool], ...]:
    return _T.consumer == consumer, _T.due_at == DEAD


def _numbers(ids: Collection[str]) -> list[int]:
    found = {int(part) for name in ids if (part := name.removeprefix(ID_PREFIX)).isdecimal()}
    return sorted(number for number in found if number < 2**63)
