"""Defines bulk statements, one for a whole batch of a ledger table; implemented per database.

All methods take sorted keys, so that two batches cannot deadlock, and ask the database which
rows were new: a row count is not reliable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection, Table

Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table that are written and read in bulk; `consumer` and `key` are its primary key.

    Args:
        table: has the columns `consumer`, `key`, `moment` and `owner`.
        key: the name of the column that identifies a row of a consumer.
        moment: the column that is set to the time of an insert.
        touches: an update sets it, too.
        inserted: further columns of a new row.
        updated: columns that `update` writes.
        read: columns that `read` returns.
    """

    table: Table
    key: str
    moment: str
    inserted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    touches: bool = False


class Bulk(Protocol):
    """Bulk statements for one table of one dialect; prepared once."""

    def insert_new(
        self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime
    ) -> set[str]:
        """Insert the rows whose key does not exist; returns those keys. Waits for uncommitted inserts of others.

        Args:
            connection: the transaction.
            consumer: the ledger scope.
            rows: key, then the columns `inserted`; sorted by key, each key once.
            now: stored in the column `moment`.
        """
        ...

    def update(self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime) -> None:
        """Set the columns `updated`; rows are key, then these columns, sorted by key."""
        ...

    def delete(self, connection: Connection, consumer: str, keys: Sequence[str]) -> None:
        """Delete the rows with these keys, which are sorted."""
        ...

    def read(
        self, connection: Connection, consumer: str, keys: Sequence[str], *, lock: bool = False
    ) -> dict[str, Sequence[str | None]]:
        """Return the columns `read` by key, of existing rows.

        Args:
            connection: the transaction.
            consumer: the ledger scope.
            keys: sorted.
            lock: lock the rows until the transaction ends; waits for other holders.
        """
        ...
