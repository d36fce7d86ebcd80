"""Reads how a column compares texts, and lets the database group texts that are equal in that column."""
# ruff: noqa: S608 - names are quoted by the dialect, the rest comes from the database's catalog; values are parameters

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, text

from oncemq.ledger.sql.column_types import MYSQL_NAMES

_POSTGRESQL: Final = text(
    "WITH RECURSIVE base AS ("
    " SELECT a.atttypid AS type, a.atttypmod AS modifier, a.attcollation AS collation"
    " FROM pg_attribute a WHERE a.attrelid = CAST(:table AS regclass) AND a.attname = :column"
    " UNION ALL SELECT t.typbasetype, t.typtypmod, base.collation"
    " FROM base JOIN pg_type t ON t.oid = base.type WHERE t.typtype = 'd')"
    " SELECT t.typname, format_type(base.type, -1), base.modifier, n.nspname, c.collname,"
    " coalesce((to_jsonb(c) ->> 'collisdeterministic')::boolean, true)"
    " FROM base JOIN pg_type t ON t.oid = base.type LEFT JOIN pg_collation c ON c.oid = base.collation"
    " LEFT JOIN pg_namespace n ON n.oid = c.collnamespace WHERE t.typtype <> 'd'"
)
_MYSQL: Final = text(
    "SELECT data_type, character_maximum_length, character_set_name, collation_name"
    " FROM information_schema.columns"
    " WHERE table_schema = coalesce(:schema, database()) AND table_name = :table AND column_name = :column"
)
_EXACT_MYSQL: Final = ("_nopad_bin", "_0900_bin", "binary")
"""Suffixes of the collations that neither fold nor pad."""
_CODECS: Final = {"utf8mb4": "", "latin1": "cp1252", "utf8mb3": "utf-8", "utf8": "utf-8"}
"""Python's names of character sets that MySQL names differently."""

SAMPLES: Final = {"a": "", "A": "case", "á": "accents", "a ": "trailing blanks"}
"""Texts, and the property that is ignored if they equal the first."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the database compares the texts of a column.

    Args:
        name: of the collation, or of the type, for people.
        exact: texts are equal only if identical character by character.
        padded: the column has a fixed width, so trailing blanks of a value are not kept.
        length: maximum of characters in the column; None = no limit.
        type: PostgreSQL's name of the type, without its length, if a parameter must have it to be compared as the
            column is.
        charset: Python's name of the column's character set; empty = all characters.
        sql: a parameter `{}` wrapped so that it compares as the column does.
    """

    name: str = ""
    exact: bool = True
    padded: bool = False
    length: int | None = None
    type: str = ""
    sql: str = "{}"
    charset: str = ""

    def fit(self, value: Any) -> None:
        """Refuse a text that the column would change: drivers and databases truncate it silently.

        Raises:
            ValueError: says why.
        """
        if not isinstance(value, str):
            return
        if self.length is not None and len(value) > self.length:
            raise ValueError(f"has {len(value)} characters, the column holds {self.length}")
        if self.padded and value.endswith(" "):
            raise ValueError("ends with a space, which a column of fixed width does not keep")
        if self.charset and not value.isascii():
            self._encode(value)

    def _encode(self, value: str) -> None:
        """Refuse text outside the character set: one such value is an error for all that are looked up with it."""
        try:
            value.encode(self.charset)
        except UnicodeEncodeError:
            raise ValueError(
                f"has characters that the column's character set ({self.charset}) has not"
            ) from None


def comparison_of(connection: Connection, table: Table, column: Column[Any]) -> Comparison:
    """Return how the database compares a text column; a column of another type compares as Python does."""
    name = connection.dialect.name
    if name == "postgresql":
        return _postgresql(connection, table, column)
    if name in MYSQL_NAMES:
        return _mysql(connection, table, column)
    return _sqlite(connection, table, column)


def groups(
    connection: Connection, table: Table, compared: Sequence[Comparison], rows: Sequence[Sequence[str]]
) -> list[int]:
    """Return for each row of texts the number of the first row that is equal in the database.

    Args:
        connection: the transaction.
        table: the columns' table.
        compared: how each text of a row is compared.
        rows: each with one text for each of `compared`.
    """
    if len(rows) < 2:
        return list(range(len(rows)))
    name = connection.dialect.name
    ask = (
        _group_postgresql if name == "postgresql" else _group_mysql if name in MYSQL_NAMES else _group_sqlite
    )
    answer = list(range(len(rows)))
    for number, first in ask(connection, table, compared, rows):
        answer[number] = first
    return answer


def ignored(connection: Connection, table: Table, compared: Comparison) -> list[str]:
    """Return a description of the differences that the database ignores in a column's texts."""
    words = ["trailing blanks"] if compared.padded else []
    if compared.exact:
        return words
    found = groups(connection, table, [compared], [[sample] for sample in SAMPLES])
    return [word for word, first in zip(SAMPLES.values(), found, strict=True) if word and first == 0] or words


def _postgresql(connection: Connection, table: Table, column: Column[Any]) -> Comparison:
    preparer = connection.dialect.identifier_preparer
    place = {"table": preparer.format_table(table), "column": column.name}
    row = connection.execute(_POSTGRESQL, place).first()
    if row is None:
        return Comparison()
    kind, called, modifier, schema, collation, deterministic = row
    if kind not in {"text", "varchar", "bpchar", "citext"}:
        return Comparison()
    padded, length = kind == "bpchar", modifier - 4 if modifier > 4 and kind != "citext" else None
    if kind == "citext" or not deterministic:
        collate = "" if deterministic else f" COLLATE {preparer.quote(schema)}.{preparer.quote(collation)}"
        shown = kind if deterministic else collation
        return Comparison(shown, False, padded, length, called, f"CAST({{}} AS {called}){collate}")
    return Comparison(f"char({length})" if padded else "", True, padded, length, called if padded else "")


def _group_postgresql(
    connection: Connection, table: Table, compared: Sequence[Comparison], rows: Sequence[Sequence[str]]
) -> list[tuple[int, int]]:
    del table
    names = [f"v{place}" for place in range(len(compared))]
    same = ", ".join(
        comparison.sql.format(f"r.{name}") for comparison, name in zip(compared, names, strict=True)
    )
    arrays = ", ".join(f"CAST(:{name} AS text[])" for name in names)
    found = connection.execute(
        text(
            f"SELECT n - 1, min(n) OVER (PARTITION BY {same}) - 1"
            f" FROM unnest({arrays}) WITH ORDINALITY AS r({', '.join(names)}, n)"
        ),
        dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)),
    )
    return [(row[0], row[1]) for row in found]


def _mysql(connection: Connection, table: Table, column: Column[Any]) -> Comparison:
    place = {"schema": table.schema, "table": table.name, "column": column.name}
    row = connection.execute(_MYSQL, place).first()
    if (
        row is None
        or row[3] is None
        or row[0] not in {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
    ):
        return Comparison()
    kind, length, charset, collation = row
    padded = kind == "char"
    if collation.endswith(_EXACT_MYSQL):
        return Comparison(collation, True, padded, length, charset=_codec(charset))
    same = f"CONVERT({{}} USING {charset}) COLLATE {collation}"
    return Comparison(collation, False, padded, length, sql=same, charset=_codec(charset))


def _codec(charset: str) -> str:
    name = _CODECS.get(charset, charset)
    try:
        return name and codecs.lookup(name).name
    except LookupError:
        return ""  # the server decides


def _group_mysql(
    connection: Connection, table: Table, compared: Sequence[Comparison], rows: Sequence[Sequence[str]]
) -> list[tuple[int, int]]:
    del table
    names = [f"v{place}" for place in range(len(compared))]
    same = ", ".join(
        comparison.sql.format(f"r.{name}") for comparison, name in zip(compared, names, strict=True)
    )
    # Half of the cost of JSON_TABLE, and older servers support it as well.
    given = " UNION ALL ".join(
        f"SELECT {number} AS n, {', '.join(f'CONVERT(%s USING utf8mb4) AS {name}' for name in names)}"
        for number in range(len(rows))
    )
    found = connection.exec_driver_sql(
        f"SELECT n, MIN(n) OVER (PARTITION BY {same}) FROM ({given}) AS r",
        tuple(value for row in rows for value in row),
    )
    return [(row[0], row[1]) for row in found]


def _sqlite(connection: Connection, table: Table, column: Column[Any]) -> Comparison:
    try:
        kind = column.type.python_type
    except NotImplementedError:
        kind = object
    if kind is not str:
        return Comparison()
    asked = Comparison("COLLATE", False, sql=connection.dialect.identifier_preparer.quote(column.name))
    words = ignored(connection, table, asked)
    if not words:
        return Comparison()
    return Comparison("COLLATE NOCASE" if "case" in words else "COLLATE RTRIM", False, sql=asked.sql)


def _group_sqlite(
    connection: Connection, table: Table, compared: Sequence[Comparison], rows: Sequence[Sequence[str]]
) -> list[tuple[int, int]]:
    # The first part has no rows: it gives the others the collations of its columns.
    places = range(len(compared))
    own = ", ".join(f"{comparison.sql} AS v{place}" for place, comparison in enumerate(compared))
    given = ", ".join(f"json_extract(value, '$[{place}]')" for place in places)
    same = ", ".join(f"v{place}" for place in places)
    found = connection.execute(
        text(
            f"SELECT n, min(n) OVER (PARTITION BY {same}) FROM (SELECT NULL AS n, {own}"
            f" FROM {connection.dialect.identifier_preparer.format_table(table)} WHERE 0"
            f" UNION ALL SELECT key, {given} FROM json_each(:rows)) WHERE n IS NOT NULL"
        ),
        {"rows": json.dumps([list(row) for row in rows])},
    )
    return [(row[0], row[1]) for row in found]
