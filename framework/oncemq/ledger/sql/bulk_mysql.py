"""Bulk statements for MySQL and MariaDB, which take a batch as a list of VALUES."""
# ruff: noqa: S608 - the names are the ledger's own and quoted; values are parameters

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Dialect

from oncemq.ledger.sql.bulk import Row, Shape


class MariaDBBulk:
    """INSERT … RETURNING identifies our rows by a token that is unique to each attempt."""

    def __init__(self, dialect: Dialect, shape: Shape) -> None:
        quote = dialect.identifier_preparer.quote
        self._table, self._key = quote(shape.table.name), quote(shape.key)
        inserted, self._updated, read = (
            [quote(name) for name in names] for names in (shape.inserted, shape.updated, shape.read)
        )
        self._moment, self._touches = quote(shape.moment), shape.touches
        given = {*shape.updated, shape.moment, shape.key, "consumer"}
        self._fillers = [
            quote(column.name)
            for column in shape.table.columns
            if not column.nullable and column.name not in given
        ]
        self._columns = ", ".join([*inserted, quote(shape.moment), "owner", "consumer", self._key])
        self._values = f"({', '.join(['%s'] * (len(inserted) + 4))})"
        self._read = f"SELECT {', '.join([self._key, *read])} FROM {self._table} WHERE consumer = %s AND {self._key} IN "

    def insert_new(
        self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime
    ) -> set[str]:
        """See Bulk."""
        # One token per unit is not enough: after a commit whose answer was lost, the next attempt must see
        # these rows as another transaction's.
        owner, moment, scope = os.urandom(16), _moment(now), consumer.encode()
        parameters: list[Any] = []
        for key, *values in rows:
            parameters += [*map(_encode, values), moment, owner, scope, _encode(key)]
        insert = (
            f"INSERT INTO {self._table} ({self._columns}) VALUES {_repeat(self._values, len(rows))}"
            " ON DUPLICATE KEY UPDATE owner = owner"
        )
        return {key.decode() for key in self._ours(connection, insert, parameters, owner, scope)}

    def update(self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime) -> None:
        """See Bulk."""
        # The rows exist and are locked, so this never inserts. A join with a list of values would truncate long
        # values, as derived tables do.
        fillers = ["" for _ in self._fillers]
        parameters: list[Any] = []
        for key, *values in rows:
            parameters += [*map(_encode, values), _moment(now), consumer.encode(), _encode(key), *fillers]
        columns = [*self._updated, self._moment, "consumer", self._key, *self._fillers]
        row = f"({', '.join(['%s'] * len(columns))})"
        changed = [*self._updated, *([self._moment] if self._touches else [])]
        sets = ", ".join(f"{column} = VALUES({column})" for column in changed)
        connection.exec_driver_sql(
            f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES {_repeat(row, len(rows))}"
            f" ON DUPLICATE KEY UPDATE {sets}",
            tuple(parameters),
        )

    def delete(self, connection: Connection, consumer: str, keys: Sequence[str]) -> None:
        """See Bulk."""
        connection.exec_driver_sql(
            f"DELETE FROM {self._table} WHERE consumer = %s AND {self._key} IN {_list(len(keys))}",
            (consumer.encode(), *(key.encode() for key in keys)),
        )

    def read(
        self, connection: Connection, consumer: str, keys: Sequence[str], *, lock: bool = False
    ) -> dict[str, Sequence[str | None]]:
        """See Bulk."""
        locking = " FOR UPDATE" if lock else ""
        found = connection.exec_driver_sql(
            f"{self._read}{_list(len(keys))} ORDER BY {self._key}{locking}",
            (consumer.encode(), *(key.encode() for key in keys)),
        )
        return {row[0].decode(): [_decode(value) for value in row[1:]] for row in found}

    def _ours(
        self,
        connection: Connection,
        insert: str,
        parameters: list[Any],
        owner: bytes,
        scope: bytes,  # noqa: ARG002
    ) -> Iterable[bytes]:
        """Insert; return the keys whose row carries our token."""
        returned = connection.exec_driver_sql(f"{insert} RETURNING {self._key}, owner", tuple(parameters))
        return [key for key, token in returned if token == owner]


class MySQLBulk(MariaDBBulk):
    """MySQL has no RETURNING: a second statement reads which rows carry our token."""

    def _ours(
        self, connection: Connection, insert: str, parameters: list[Any], owner: bytes, scope: bytes
    ) -> Iterable[bytes]:
        connection.exec_driver_sql(insert, tuple(parameters))
        width = self._values.count("%s")
        keys = parameters[width - 1 :: width]
        found = connection.exec_driver_sql(
            f"SELECT {self._key} FROM {self._table} WHERE consumer = %s AND owner = %s AND {self._key} IN {_list(len(keys))}",
            (scope, owner, *keys),
        )
        return found.scalars()


def _repeat(part: str, times: int) -> str:
    return ", ".join([part] * times)


def _list(count: int) -> str:
    return f"({_repeat('%s', count)})"


def _encode(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _decode(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _moment(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(tzinfo=None)
