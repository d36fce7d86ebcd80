"""Whole batches of a ledger table in one statement each: what differs between databases stands here.

Every method gets its keys sorted, so that two batches never wait for each other crosswise, and says
which rows were new by asking the database for them: a count of rows proves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection, Table

Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns of a table are written and read in bulk; `consumer` and `key` are its primary key.

    Args:
        table: has the columns `consumer`, `key`, `moment` and `owner`.
        key: the name of the column that tells a consumer's rows apart.
        moment: the column that is set to the time of an insert.
        touches: an update sets it, too.
        inserted: columns that a new row is given, besides.
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
    """One table of one dialect; statements are prepared once."""

    def insert_new(
        self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime
    ) -> set[str]:
        """Insert the rows whose key is not there; returns those keys. Waits for uncommitted rivals.

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
        """Return the columns `read` by key, of those that are there.

        Args:
            connection: the transaction.
            consumer: the ledger scope.
            keys: sorted.
            lock: keep the rows locked until the transaction ends; waits for rivals.
        """
        ...
