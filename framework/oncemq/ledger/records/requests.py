"""Requests that must take effect once: current owner, end of the lease, and answer.

    (no row) ── begin ──▶ RUNNING ── finish ──▶ DONE
                             │ └── release ──▶ (no row)
                             └── lease over ── take_over ──▶ RUNNING, of another owner

EXPOSED is RUNNING for effects outside the ledger's database: when its lease has expired, they may have happened.
Every transition compares the owner, so an owner that lost a request can neither finish nor release it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.sql.column_types import MYSQL_NAMES, Bytes, ExactText, LongText, Moment, Token
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table
from oncemq.message.identity import escape_part

FINGERPRINT_SIZE = 64

TABLE = ledger_table(
    "requests",
    Column("scope", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("identity", ExactText(KEY_SIZE), primary_key=True),
    Column("fingerprint", ExactText(FINGERPRINT_SIZE), nullable=False),
    Column("state", ExactText(16), nullable=False),
    Column("owner", Token, nullable=False),
    Column("until", Moment, nullable=False),
    Column("changed_at", Moment, nullable=False),
    Column("status", Integer),
    Column("headers", LongText),
    Column("body", Bytes),
    Index("oncemq_requests_age", "scope", "changed_at"),
)


class State(StrEnum):
    """Progress of a request."""

    RUNNING = "running"
    """None of its effects persist unless it becomes DONE, in the same transaction."""
    EXPOSED = "exposed"
    """Its effects are outside this database and may have happened."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Record:
    """The ledger's record of a request.

    Args:
        fingerprint: of its content.
        state: the request's progress.
        owner: the token of the current or last owner.
        until: when that lease expires, aware.
        status: the answer's; None before there is one, and for calls that are not HTTP requests.
        headers: of the answer, as JSON.
        body: of the answer; None if it was too large to store.
        changed_at: when its state or its lease changed last, aware.
    """

    fingerprint: str
    state: State
    owner: bytes
    until: datetime
    status: int | None
    headers: str | None
    body: bytes | None
    changed_at: datetime


def find(connection: Connection, scope: str, identity: str) -> Record | None:
    """Return the record of a request."""
    columns = [TABLE.c[name] for name in Record.__dataclass_fields__]
    row = connection.execute(select(*columns).where(_is(scope, identity))).first()
    if row is None:
        return None
    fields: dict[str, Any] = dict(row._mapping)
    return Record(**{**fields, "state": State(row.state)})


def has_key(key: str) -> ColumnElement[bool]:
    """Return whether an identity ends with a key; not by LIKE, which is case-insensitive on SQLite."""
    column = TABLE.c.identity
    end = literal(f":{escape_part(key)}", column.type)
    start = func.length(column) - func.length(end) + 1
    return func.substr(column, start, type_=column.type) == end


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the requests and calls with a key, of every caller; an identity stored as a digest has no readable key.

    Reads every row: no index covers the end of an identity.
    """
    names = ("scope", "identity", "state", "status", "until", "changed_at")
    rows = select(*(TABLE.c[name] for name in names)).where(has_key(key))
    found = connection.execute(rows.order_by(TABLE.c.scope, TABLE.c.identity))
    return [dict(row) for row in found.mappings()]


def begin(
    connection: Connection,
    scope: str,
    identity: str,
    *,
    fingerprint: str,
    state: State,
    owner: bytes,
    now: datetime,
    until: datetime,
) -> bool:
    """Record `owner` as the owner of a new request; returns whether it was the first."""
    row = {
        "scope": scope,
        "identity": identity,
        "fingerprint": fingerprint,
        "state": state.value,
        "owner": owner,
        "until": until,
        "changed_at": now,
    }
    _insert_new(connection, row)
    first = select(TABLE.c.owner).where(_is(scope, identity), TABLE.c.owner == owner)
    return connection.execute(first).first() is not None


def take_over(
    connection: Connection,
    scope: str,
    identity: str,
    *,
    seen: Record,
    state: State,
    owner: bytes,
    now: datetime,
    until: datetime,
) -> bool:
    """Take over a request whose lease has expired, if it is unchanged since `seen`; returns whether it is ours."""
    unchanged = (TABLE.c.owner == seen.owner) & (TABLE.c.state == seen.state.value)
    over = TABLE.c.until <= server_moment(connection.dialect)
    ours = (
        update(TABLE)
        .where(_is(scope, identity), unchanged, TABLE.c.until <= now, over)
        .values(owner=owner, state=state.value, until=until, changed_at=now)
    )
    return connection.execute(ours).rowcount == 1


def finish(
    connection: Connection,
    scope: str,
    identity: str,
    *,
    owner: bytes,
    now: datetime,
    status: int | None,
    headers: str | None,
    body: bytes | None,
) -> bool:
    """Store the answer; returns False if another owner has taken the request over."""
    done = (
        update(TABLE)
        .where(_is(scope, identity), _unfinished(owner))
        .values(state=State.DONE.value, changed_at=now, status=status, headers=headers, body=body)
    )
    return connection.execute(done).rowcount == 1


def release(connection: Connection, scope: str, identity: str, owner: bytes) -> None:
    """Delete a request that left no effects, so that it can be repeated."""
    connection.execute(delete(TABLE).where(_is(scope, identity), _unfinished(owner)))


def expire(
    connection: Connection, scope: str, identity: str, *, seen: Record, before: datetime, keep: timedelta
) -> bool:
    """Delete a request that is older than its time, if it is unchanged since `seen`; returns whether it is gone.

    Args:
        connection: the transaction.
        scope: the ledger's name.
        identity: of the request.
        seen: the record.
        before: aware; by the process's clock.
        keep: the same by the database's clock.
    """
    unchanged = (TABLE.c.owner == seen.owner) & (TABLE.c.state == seen.state.value)
    old = (TABLE.c.changed_at < before) & (TABLE.c.changed_at < server_moment(connection.dialect, keep))
    return connection.execute(delete(TABLE).where(_is(scope, identity), unchanged, old)).rowcount == 1


def end_lease(connection: Connection, scope: str, identity: str, owner: bytes, now: datetime) -> None:
    """End the lease of a request whose effects may have happened."""
    over = update(TABLE).where(_is(scope, identity), _unfinished(owner)).values(until=now, changed_at=now)
    connection.execute(over)


def _is(scope: str, identity: str) -> ColumnElement[bool]:
    return (TABLE.c.scope == scope) & (TABLE.c.identity == identity)


def _unfinished(owner: bytes) -> ColumnElement[bool]:
    return (TABLE.c.owner == owner) & (TABLE.c.state != State.DONE.value)


def _insert_new(connection: Connection, row: dict[str, Any]) -> None:
    """Insert, unless the row exists; waits for an uncommitted concurrent insert."""
    name = connection.dialect.name
    if name in MYSQL_NAMES:
        statement = mysql.insert(TABLE).values(**row)
        connection.execute(statement.on_duplicate_key_update(owner=TABLE.c.owner))
    elif name == "postgresql":
        connection.execute(postgresql.insert(TABLE).values(**row).on_conflict_do_nothing())
    else:
        connection.execute(sqlite.insert(TABLE).values(**row).on_conflict_do_nothing())


_SHOWN = ("scope", "identity", "until", "changed_at")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Filter of requests; unset fields do not restrict it.

    Args:
        ledger: the name of the ledger of requests.
        ids: identities, as they are listed.
        key: the caller's key; an identity stored as a digest has no readable key.
    """

    ledger: str | None = None
    ids: frozenset[str] = frozenset()
    key: str | None = None


def listed(connection: Connection, chosen: Chosen, now: datetime, limit: int) -> list[dict[str, object]]:
    """Return requests with external effects whose lease has expired, longest ago first; without answers."""
    rows = select(*(TABLE.c[name] for name in _SHOWN)).where(*_unknown(chosen, now))
    found = rows.order_by(TABLE.c.until, TABLE.c.scope, TABLE.c.identity).limit(limit)
    return [dict(row) for row in connection.execute(found).mappings()]


def clear(connection: Connection, chosen: Chosen, now: datetime) -> int:
    """Delete them, so that the next request with that key is carried out; returns how many.

    A request that is being verified has a lease again, and stays.

    Args:
        connection: the transaction.
        chosen: the filter.
        now: aware.
    """
    return connection.execute(delete(TABLE).where(*_unknown(chosen, now))).rowcount


def count_held(connection: Connection, chosen: Chosen, now: datetime) -> int:
    """Return how many requests have a live lease: being carried out or verified."""
    held = select(func.count()).where(*_exposed(chosen), TABLE.c.until > now)
    return connection.execute(held).scalar_one()


def _unknown(chosen: Chosen, now: datetime) -> Sequence[ColumnElement[bool]]:
    return [*_exposed(chosen), TABLE.c.until <= now]


def _exposed(chosen: Chosen) -> Sequence[ColumnElement[bool]]:
    found = [TABLE.c.state == State.EXPOSED.value]
    if chosen.ledger is not None:
        found.append(TABLE.c.scope == chosen.ledger)
    if chosen.ids:
        found.append(TABLE.c.identity.in_(sorted(chosen.ids)))
    if chosen.key is not None:
        found.append(has_key(chosen.key))
    return found
