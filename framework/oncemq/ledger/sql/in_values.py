"""`column IN values` for many values: one array for PostgreSQL, which otherwise parses a parameter for each."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, all_, any_, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine


def among(
    connection: Connection, column: ColumnElement[Any], kind: TypeEngine[Any], values: Collection[Any]
) -> ColumnElement[bool]:
    """Return `column IN values`.

    Args:
        connection: has the dialect.
        column: the compared column.
        kind: the plain type of the values on PostgreSQL, such as TEXT.
        values: not None.
    """
    if connection.dialect.name == "postgresql":
        return column == any_(bindparam(None, list(values), type_=ARRAY(kind)))
    return column.in_(values)


def not_among(
    connection: Connection, column: ColumnElement[Any], kind: TypeEngine[Any], values: Collection[Any]
) -> ColumnElement[bool]:
    """Return `column NOT IN values`; see `among`."""
    if connection.dialect.name == "postgresql":
        return column != all_(bindparam(None, list(values), type_=ARRAY(kind)))
    return column.not_in(values)
