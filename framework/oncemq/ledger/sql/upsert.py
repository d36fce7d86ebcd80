"""Inserts a row, or updates an existing one, in one statement on every database."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

from oncemq.ledger.sql.column_types import MYSQL_NAMES


def upsert(
    connection: Connection,
    table: Table,
    row: Mapping[str, Any],
    update: Mapping[str, ColumnElement[Any] | Any],
) -> None:
    """Insert `row`; if a row with its primary key exists, set the columns of `update` instead."""
    if connection.dialect.name in MYSQL_NAMES:
        statement = mysql.insert(table).values(**row)
        connection.execute(statement.on_duplicate_key_update(**update))
        return
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    connection.execute(
        insert(table)
        .values(**row)
        .on_conflict_do_update(index_elements=list(table.primary_key), set_=dict(update))
    )
