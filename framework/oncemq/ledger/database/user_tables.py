"""The user's own tables, named in the configuration: reflected once, refused with a reason if unsuitable."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    exc,
    inspect,
)

from oncemq.ledger.sql.tables import PREFIX
from oncemq.registry import did_you_mean

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

Convert = Callable[[Any], Any]
"""From a message's value to the column's Python value; raises ValueError with a reason if there is none."""


class UnfitTable(ValueError):
    """A table or column cannot serve as configured; the text says why."""


def check_name(name: object, *, qualified: bool = False) -> str:
    """Return `name` if it is valid in SQL.

    Args:
        name: from the configuration.
        qualified: `schema.table` is allowed, too.

    Raises:
        UnfitTable: it is not valid.
    """
    parts = name.split(".") if isinstance(name, str) else []
    if not parts or len(parts) > (2 if qualified else 1) or not all(map(_NAME.fullmatch, parts)):
        form = "letters, digits and _, not starting with a digit, at most 63"
        raise UnfitTable(
            f"{name!r} is not a usable name: {form}{'; a schema may stand before a dot' if qualified else ''}"
        )
    return ".".join(parts)


def look_up(connection: Connection, metadata: MetaData, name: str) -> Table:
    """Return the table as reflected from the database; reflected once for each MetaData.

    Raises:
        UnfitTable: the table does not exist.
    """
    schema, _, table = name.rpartition(".")
    try:
        return Table(table, metadata, schema=schema or None, autoload_with=connection, resolve_fks=False)
    except exc.NoSuchTableError:
        tables = inspect(connection).get_table_names(schema=schema or None)
        known = [each for each in tables if not each.startswith(PREFIX)]
        raise UnfitTable(
            f"there is no table {name!r}{did_you_mean(table, known)}; it must exist before the app starts"
        ) from None


def column_of(table: Table, name: str) -> Column[Any]:
    """Return a column by its exact name.

    Raises:
        UnfitTable: the column does not exist.
    """
    if name not in table.columns:
        raise UnfitTable(
            f"table {table.fullname} has no column {name!r}{did_you_mean(name, list(table.columns.keys()))}"
        )
    return table.columns[name]


def converter(column: Column[Any]) -> Convert:
    """Return the conversion from a message's value to a key in this column.

    Raises:
        UnfitTable: values of this type cannot be keys.
    """
    return _converter(column, _KEYS, "keys are text, integers, decimals, UUIDs, dates or times")


def comparer(column: Column[Any]) -> Convert:
    """Return the conversion from a message's value to a value comparable with this column's; None stays None, for NULL.

    Raises:
        UnfitTable: columns of this type cannot be compared with message values.
    """
    kinds = {**_KEYS, bool: _boolean, float: _float}
    if isinstance(column.type, DateTime):
        kinds[datetime] = _moment if column.type.timezone else _moment_in_utc
    if isinstance(column.type, Integer):  # MySQL and MariaDB have no other boolean type
        kinds[int] = _number
    convert = _converter(column, kinds, "compared are text, numbers, booleans, UUIDs, dates and times")
    return lambda value: None if value is None else convert(value)


def _converter(column: Column[Any], kinds: Mapping[type, Convert], possible: str) -> Convert:
    try:
        python_type = column.type.python_type
    except NotImplementedError:
        python_type = object
    convert = kinds.get(python_type)
    if convert is None:
        raise UnfitTable(f"column {column} has the type {column.type}: {possible}")

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, InvalidOperation, OverflowError):
            shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
            raise ValueError(f"{shown} does not fit column {column} of type {column.type}") from None

    return checked


def unique_problem(connection: Connection, table: Table, columns: Sequence[str]) -> str:
    """Return why no unique constraint makes `columns` unique in `table`; empty if a constraint does."""
    wanted = set(columns)
    found = _unique_sets(connection, table)
    if any(wanted == names for names in found):
        return ""
    listed = ", ".join(columns)
    wider = next((names for names in found if wanted < names), None)
    if wider is not None:
        extra = ", ".join(sorted(wider - wanted))
        return (
            f"table {table.fullname} is unique over ({', '.join(sorted(wider))}), not over ({listed}): a second copy of "
            f"a message with another {extra} would be stored as well"
        )
    narrower = next((names for names in found if names < wanted), None)
    if narrower is not None:
        return (
            f"table {table.fullname} is unique over ({', '.join(sorted(narrower))}) already: name exactly these columns, "
            f"or messages that differ in {', '.join(sorted(wanted - narrower))} alone fail instead of being duplicates"
        )
    return f"table {table.fullname} has no unique constraint or index over ({listed})"


def is_unique(connection: Connection, table: Table, column: str) -> bool:
    """Return whether a value of `column` identifies at most one row."""
    return {column} in _unique_sets(connection, table)


def _unique_sets(connection: Connection, table: Table) -> list[set[str]]:
    sets = [{column.name for column in table.primary_key}]
    sets += [
        {c.name for c in part.columns} for part in table.constraints if isinstance(part, UniqueConstraint)
    ]
    for index in inspect(connection).get_indexes(table.name, schema=table.schema):
        partial = any("where" in name or "length" in name for name, value in _options(index) if value)
        if index["unique"] and not partial and None not in index["column_names"]:
            sets.append({str(name) for name in index["column_names"]})
    return [names for names in sets if names]


def _options(index: Any) -> list[tuple[str, Any]]:
    return list(index.get("dialect_options", {}).items())


def _text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    value.encode()
    return value


def whole_number(value: Any) -> int:
    """Return the integer in a message's value; text in its usual spelling counts, too.

    Raises:
        TypeError: it is of another type.
        ValueError: the text is not an integer, or it has more than 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    number = int(value)
    if not -(2**63) <= number < 2**63 or (isinstance(value, str) and str(number) != value):
        raise ValueError
    return number


def _number(value: Any) -> int:
    return whole_number(int(value) if isinstance(value, bool) else value)


def _boolean(value: Any) -> bool:
    if value not in (False, True, "0", "1"):
        raise ValueError
    return value in (True, "1")


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError
    return number


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _moment_in_utc(value: Any) -> datetime:
    """Return the moment in UTC without its zone, as columns without a zone store it."""
    moment = _moment(value)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


_KEYS: Mapping[type, Convert] = {
    str: _text,
    int: whole_number,
    Decimal: _decimal,
    datetime: _moment,
    date: _date,
    UUID: _uuid,
}
