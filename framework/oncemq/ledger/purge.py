"""Purges old rows: a bounded batch in a transaction of its own, skipping locked rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Select,
    Table,
    and_,
    any_,
    delete,
    exists,
    func,
    literal_column,
    select,
    text,
)

from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.database.server_clock import server_moment
from oncemq.ledger.records import (
    audit,
    claims,
    final_failures,
    history,
    processed,
    requests,
    states,
    suspects,
)
from oncemq.ledger.records import (
    row_mutexes as locked_rows,
)
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.ledger.sql.row_locks import can_skip_locked

BATCH = 1000
"""Rows in one transaction: about 10 ms, so that no unit is blocked for long on SQLite."""


@dataclass(frozen=True, slots=True)
class Aged:
    """A table whose rows expire.

    Args:
        table: the table.
        moment: the column with the row's creation time; it has an index.
        scope: the column with the row's owner.
    """

    table: Table
    moment: str
    scope: str = "consumer"


PROCESSED = Aged(processed.TABLE, "processed_at")
CLAIMS = Aged(claims.TABLE, "done_at")
"""Only rows that are done expire; the others wait for an answer."""
HISTORY = Aged(history.TABLE, "at")
FINAL_FAILURES = Aged(final_failures.TABLE, "at")
AUDIT = Aged(audit.TABLE, "at")
SUSPECTS = Aged(suspects.TABLE, "crashed_at")
STATES = Aged(states.TABLE, "changed_at")
LOCKED_ROWS = Aged(locked_rows.TABLE, "locked_at", "scope")
REQUESTS = Aged(requests.TABLE, "changed_at", "scope")


def purge(
    engine: Engine,
    aged: Aged,
    before: datetime,
    *,
    keep: timedelta = timedelta(0),
    scope: str | None = None,
    limit: int = BATCH,
) -> int:
    """Delete the oldest rows from before a moment, at most `limit`; returns how many.

    Locked rows are left for the next run, so a purge never waits for consumers; where the database
    cannot skip them (MariaDB before 10.6), the lock time-out bounds the wait.

    Args:
        engine: the app's database.
        aged: the table to delete from.
        before: aware.
        keep: rows younger than this by the database's own clock stay, whatever `before` says.
        scope: only of this consumer; None = of all.
        limit: rows in this transaction.
    """
    old = _old(engine.dialect, aged, before, keep, scope)
    with engine.begin() as connection:
        if connection.dialect.name in MYSQL_NAMES:
            return _by_key(connection, aged, old, limit)
        if connection.dialect.name == "postgresql":
            # Rows that a crash brings back are purged again, so neither we nor consumers need to wait for the disk.
            connection.execute(text("SET LOCAL synchronous_commit = off"))
        return _by_place(connection, aged, old, limit)


def expired(
    dialect: Dialect, aged: Aged, before: datetime, *, keep: timedelta, scope: str | None = None
) -> ColumnElement[bool]:
    """Return the condition under which `purge` finds a row."""
    return exists(literal_column("1")).where(_old(dialect, aged, before, keep, scope))


def _old(
    dialect: Dialect, aged: Aged, before: datetime, keep: timedelta, scope: str | None
) -> ColumnElement[bool]:
    moment = aged.table.c[aged.moment]
    return _of(aged, and_(moment < before, moment < server_moment(dialect, keep)), scope)


def came_since(engine: Engine, aged: Aged, since: datetime, most: int, *, scope: str | None = None) -> int:
    """Return the number of rows younger than a moment; counts up to `most`.

    Args:
        engine: the app's database.
        aged: the table to count.
        since: aware.
        most: where counting stops.
        scope: only of this consumer; None = of all.
    """
    young: Select[tuple[Any]] = select(literal_column("1")).select_from(aged.table)
    some = young.where(_of(aged, aged.table.c[aged.moment] >= since, scope)).limit(most).subquery()
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def _of(aged: Aged, rows: ColumnElement[bool], scope: str | None) -> ColumnElement[bool]:
    return rows if scope is None else and_(aged.table.c[aged.scope] == scope, rows)


def _by_place(connection: Connection, aged: Aged, old: ColumnElement[bool], limit: int) -> int:
    """Delete by the row's physical address, in one statement."""
    postgresql = connection.dialect.name == "postgresql"
    place: ColumnElement[Any] = literal_column("ctid" if postgresql else "rowid")
    oldest = select(place).select_from(aged.table).where(old).order_by(aged.table.c[aged.moment]).limit(limit)
    if postgresql:
        chosen = place == any_(func.array(oldest.with_for_update(skip_locked=True).scalar_subquery()))
    else:
        chosen = place.in_(oldest)
    return connection.execute(delete(aged.table).where(chosen)).rowcount


def _by_key(connection: Connection, aged: Aged, old: ColumnElement[bool], limit: int) -> int:
    """Lock the oldest rows, then delete them by primary key: MySQL cannot do both in one statement."""
    *leading, last = aged.table.primary_key.columns
    oldest = select(*leading, last).where(old).order_by(aged.table.c[aged.moment]).limit(limit)
    if can_skip_locked(connection):
        oldest = oldest.with_for_update(skip_locked=True)
    rows = sorted(map(tuple, connection.execute(oldest)))
    deleted = 0
    for head, group in groupby(rows, key=lambda row: row[:-1]):
        ours = _equals(leading, head)
        found = last.in_([row[-1] for row in group])
        deleted += connection.execute(delete(aged.table).where(*ours, found)).rowcount
    return deleted


def _equals(columns: Sequence[Column[Any]], values: Sequence[Any]) -> list[ColumnElement[bool]]:
    return [column == value for column, value in zip(columns, values, strict=True)]
