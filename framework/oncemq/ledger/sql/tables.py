"""Declares tables of the ledger: prefix, engine, sizes of indexed columns."""

from sqlalchemy import MetaData, Table
from sqlalchemy.schema import SchemaItem

PREFIX = "oncemq_"

CONSUMER_SIZE = 255
"""Bytes of a ledger scope, `app.consumer`."""
KEY_SIZE = 512
"""Bytes of a key or an identity; consumer and identity together stay below the limit of every index."""


def ledger_table(name: str, *parts: SchemaItem, sqlite_autoincrement: bool = False) -> Table:
    """Return the table `oncemq_<name>`, in a MetaData of its own: the ledger's tables have no foreign keys.

    Args:
        name: without the prefix.
        parts: columns and indexes.
        sqlite_autoincrement: SQLite never reuses the number of a deleted row, as other databases do by default.
    """
    return Table(
        f"{PREFIX}{name}",
        MetaData(),
        *parts,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
        sqlite_autoincrement=sqlite_autoincrement,
    )


def attach(table: Table, metadata: MetaData) -> Table:
    """Return the copy of `table` in `metadata`, created on first use."""
    return metadata.tables[table.name] if table.name in metadata.tables else table.to_metadata(metadata)
