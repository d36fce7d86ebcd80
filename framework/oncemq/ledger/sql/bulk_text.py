"""Bulk statements for databases that take a whole batch as one parameter: PostgreSQL and SQLite."""
# ruff: noqa: S608 - the names are the ledger's own and quoted; values are parameters

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, Dialect, bindparam, text

from oncemq.ledger.sql.array_literals import of_texts
from oncemq.ledger.sql.bulk import Row, Shape
from oncemq.ledger.sql.column_types import Moment


class _Names:
    """A shape's names, quoted for a dialect."""

    def __init__(self, dialect: Dialect, shape: Shape) -> None:
        quote = dialect.identifier_preparer.quote
        self.table, self.key, self.moment = (
            quote(name) for name in (shape.table.name, shape.key, shape.moment)
        )
        self.inserted, self.updated, self.read = (
            [quote(name) for name in names] for names in (shape.inserted, shape.updated, shape.read)
        )

        self.touches = shape.touches

    def sets(self, prefix: str) -> str:
        """Return the SET clause of an update; value number n is called `<prefix>n`, from 1."""
        sets = [f"{name} = {prefix}{number}" for number, name in enumerate(self.updated, 1)]
        return ", ".join([*sets, f"{self.moment} = :now"] if self.touches else sets)

    def now(self) -> list[BindParameter[Any]]:
        """Return the parameter `now` of an update, if it has one."""
        return [_now()] if self.touches else []

    def insert(self, source: str) -> str:
        """Return the insert of new rows from `source`, a table `r` with the columns c0, c1 and so on."""
        values = ", ".join(f"r.c{number}" for number in range(len(self.inserted) + 1))
        return (
            f"INSERT INTO {self.table} ({', '.join(['consumer', self.moment, self.key, *self.inserted])})"
            # Without a WHERE SQLite parses ON CONFLICT as the condition of a join.
            f" SELECT :consumer, :now, {values} FROM {source} WHERE true"
            f" ON CONFLICT (consumer, {self.key}) DO NOTHING RETURNING {self.key}"
        )


class PostgreSQLBulk:
    """One array for each column: a third of the cost of a list of VALUES.

    Keys are joined, not compared with `= ANY`: a plan for that, prepared while the table was small,
    reads all rows of the consumer.
    """

    def __init__(self, dialect: Dialect, shape: Shape) -> None:
        names = _Names(dialect, shape)
        self._touches = shape.touches
        table, key = names.table, names.key
        ours = f"t.consumer = :consumer AND t.{key} = r.c0"
        self._insert = text(names.insert(_unnest(len(names.inserted) + 1))).bindparams(_now())
        self._update = text(
            f"UPDATE {table} AS t SET {names.sets('r.c')} FROM {_unnest(len(names.updated) + 1)} WHERE {ours}"
        ).bindparams(*names.now())
        self._delete = text(f"DELETE FROM {table} AS t USING {_unnest(1)} WHERE {ours}")
        columns = ", ".join(f"t.{name}" for name in [key, *names.read])
        read = f"SELECT {columns} FROM {_unnest(1)} JOIN {table} AS t ON {ours} ORDER BY t.{key}"
        self._read, self._lock = text(read), text(f"{read} FOR UPDATE OF t")

    def insert_new(
        self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime
    ) -> set[str]:
        """See Bulk."""
        parameters = {"consumer": consumer, "now": now, **_arrays(rows)}
        return set(connection.execute(self._insert, parameters).scalars())

    def update(self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime) -> None:
        """See Bulk."""
        connection.execute(
            self._update, {"consumer": consumer, **_arrays(rows), **({"now": now} if self._touches else {})}
        )

    def delete(self, connection: Connection, consumer: str, keys: Sequence[str]) -> None:
        """See Bulk."""
        connection.execute(self._delete, {"consumer": consumer, "c0": of_texts(keys)})

    def read(
        self, connection: Connection, consumer: str, keys: Sequence[str], *, lock: bool = False
    ) -> dict[str, Sequence[str | None]]:
        """See Bulk."""
        statement = self._lock if lock else self._read
        found = connection.execute(statement, {"consumer": consumer, "c0": of_texts(keys)})
        return {row[0]: row[1:] for row in found}


class SQLiteBulk:
    """The batch as JSON; BEGIN IMMEDIATE holds the write lock, so no further lock is needed."""

    def __init__(self, dialect: Dialect, shape: Shape) -> None:
        names = _Names(dialect, shape)
        self._touches = shape.touches
        ours = f"consumer = :consumer AND {names.key} IN (SELECT value FROM json_each(:keys))"
        self._insert = text(names.insert(_json_rows(len(names.inserted) + 1))).bindparams(_now())
        self._update = text(
            f"UPDATE {names.table} SET {names.sets(':c')} WHERE consumer = :consumer AND {names.key} = :c0"
        ).bindparams(*names.now())
        self._delete = text(f"DELETE FROM {names.table} WHERE {ours}")
        columns = ", ".join([names.key, *names.read])
        self._read = text(f"SELECT {columns} FROM {names.table} WHERE {ours} ORDER BY {names.key}")

    def insert_new(
        self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime
    ) -> set[str]:
        """See Bulk."""
        parameters = {"consumer": consumer, "now": now, "rows": json.dumps(rows)}
        return set(connection.execute(self._insert, parameters).scalars())

    def update(self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime) -> None:
        """See Bulk; row by row, since there are no round trips to save and a join would scan."""
        names = [f"c{number}" for number in range(len(rows[0]))]
        always = {"consumer": consumer, **({"now": now} if self._touches else {})}
        connection.execute(self._update, [{**always, **dict(zip(names, row, strict=True))} for row in rows])

    def delete(self, connection: Connection, consumer: str, keys: Sequence[str]) -> None:
        """See Bulk."""
        connection.execute(self._delete, {"consumer": consumer, "keys": json.dumps(keys)})

    def read(
        self,
        connection: Connection,
        consumer: str,
        keys: Sequence[str],
        *,
        lock: bool = False,  # noqa: ARG002 - the whole file is locked
    ) -> dict[str, Sequence[str | None]]:
        """See Bulk."""
        found = connection.execute(self._read, {"consumer": consumer, "keys": json.dumps(keys)})
        return {row[0]: row[1:] for row in found}


def _now() -> BindParameter[Any]:
    return bindparam("now", type_=Moment())


def _arrays(rows: Sequence[Row]) -> dict[str, str]:
    return {f"c{number}": of_texts(column) for number, column in enumerate(zip(*rows, strict=True))}


def _unnest(count: int) -> str:
    arrays = ", ".join(f"CAST(:c{number} AS text[])" for number in range(count))
    return f"unnest({arrays}) AS r({', '.join(f'c{number}' for number in range(count))})"


def _json_rows(count: int) -> str:
    columns = ", ".join(f"json_extract(value, '$[{number}]') AS c{number}" for number in range(count))
    return f"(SELECT {columns} FROM json_each(:rows)) AS r"
