"""Which of several values name the same row, by the comparison of each database."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, MetaData, Table, select, text
from sqlalchemy.exc import IntegrityError

from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.sql.equality import Equality
from support.database.collations import KINDS, Kind, database_of


@pytest.fixture(params=KINDS, ids=str, scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return one kind of column after the other."""
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def engine(
    kind: Kind, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Lend an engine on a database in which the kind's type is known."""
    with database_of(kind, request, tmp_path_factory) as url:
        engine = make_engine(url)
        yield engine
        engine.dispose()


def look(connection: Connection, kind: Kind, *rows: str) -> tuple[Table, Equality]:
    """Return a table with a column of this kind, and how it compares."""
    name = f"t{uuid4().hex[:8]}"
    connection.execute(text(f"CREATE TABLE {name} (k {kind.ddl} NOT NULL PRIMARY KEY)"))
    for row in rows:
        connection.execute(text(f"INSERT INTO {name} (k) VALUES (:k)"), {"k": row})
    table = Table(name, MetaData(), autoload_with=connection)
    return table, Equality(connection, table, [table.c.k])


def test_a_row_is_found_by_every_spelling_that_the_database_takes_for_it(engine: Engine, kind: Kind) -> None:
    """What the unique key holds equal is the same row, with the row's own spelling beside it."""
    spellings = ["aB3x", "AB3X", "aB3x\u0301", "other"]
    with engine.begin() as connection:
        table, equality = look(connection, kind, "aB3x", "lone")
        spellings = [value for value in spellings if fits(equality, value)]
        rows = found(connection, table, equality, spellings)
        matches = equality.match(connection, [(spelling,) for spelling in spellings], rows)
        expected = {spelling for spelling in spellings if taken(connection, table, spelling)}
        assert {value for (value,) in matches.rows} == expected
        assert {value: row for (value,), (row,) in matches.respelled.items()} == dict.fromkeys(
            expected - {"aB3x"}, "aB3x"
        )
        assert ("AB3X",) in matches.rows if "case" in kind.ignores else ("AB3X",) not in matches.rows


def test_values_without_a_row_are_compared_with_each_other(engine: Engine, kind: Kind) -> None:
    """The later one of two equal spellings knows the earlier one."""
    with engine.begin() as connection:
        _, equality = look(connection, kind)
        matches = equality.match(connection, [("Neu",), ("b",), ("NEU",), ("néu",)], [])
        expected = {}
        if "case" in kind.ignores:
            expected["NEU",] = ("Neu",)
        if {"case", "accents"} <= set(kind.ignores):
            expected["néu",] = ("Neu",)
        assert matches.rows == {}
        assert matches.earlier == expected


def test_the_column_says_what_it_ignores(engine: Engine, kind: Kind) -> None:
    """The words name the column and its collation; a column that ignores nothing has none."""
    with engine.begin() as connection:
        table, equality = look(connection, kind)
        words = f" ignores {' and '.join(kind.ignores)} ({kind.name})"
        assert equality.folds == ([f"column {table.name}.k{words}"] if kind.ignores else [])


def test_values_that_a_column_would_cut_are_refused(engine: Engine, kind: Kind) -> None:
    """A blank at the end, a text that is too long, characters that its character set has not."""
    with engine.begin() as connection:
        _, equality = look(connection, kind)
        latin = "latin1" in kind.ddl
        for value, refused in (
            ("x", False),
            ("x ", kind.padded),
            ("x" * 41, kind.limited),
            ("x\u0416", latin),
        ):
            if refused:
                with pytest.raises(ValueError, match=r"^'x+[ \u0416]?' does not fit column"):
                    equality.fit([value])
            else:
                equality.fit([value])


def test_a_composite_key_is_compared_column_by_column(engine: Engine, kind: Kind) -> None:
    """The same text with another number is another row."""
    name = f"t{uuid4().hex[:8]}"
    with engine.begin() as connection:
        connection.execute(
            text(f"CREATE TABLE {name} (k {kind.ddl} NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (k, n))")
        )
        connection.execute(text(f"INSERT INTO {name} (k, n) VALUES ('a', 1)"))
        table = Table(name, MetaData(), autoload_with=connection)
        equality = Equality(connection, table, [table.c.k, table.c.n])
        values: list[Any] = [("A", 1), ("a", 2), ("A", 2), ("a", 1)]
        rows = [
            tuple(row)
            for row in connection.execute(select(table.c.k, table.c.n).where(equality.among(values)))
        ]
        matches = equality.match(connection, values, rows)
        ci = "case" in kind.ignores
        assert set(matches.rows) == ({("A", 1), ("a", 1)} if ci else {("a", 1)})
        assert matches.respelled == ({("A", 1): ("a", 1)} if ci else {})
        assert matches.earlier == ({("A", 2): ("a", 2)} if ci else {})


def fits(equality: Equality, value: str) -> bool:
    """Return whether the column has the characters of `value`."""
    try:
        equality.fit([value])
    except ValueError:
        return False
    return True


def found(connection: Connection, table: Table, equality: Equality, values: Sequence[str]) -> list[Any]:
    """Return the keys of the rows that `values` name."""
    rows = select(table.c.k).where(equality.among([(value,) for value in values]))
    return [tuple(row) for row in connection.execute(rows)]


def taken(connection: Connection, table: Table, value: str) -> bool:
    """Return whether the primary key refuses `value`, since a row has it already."""
    savepoint = connection.begin_nested()
    try:
        connection.execute(text(f"INSERT INTO {table.name} (k) VALUES (:k)"), {"k": value})
    except IntegrityError:
        return True
    finally:
        savepoint.rollback()
    return False
