"""Columns as array literals: PostgreSQL reads from them what was written."""

import pytest
from sqlalchemy import Connection, create_engine, text

from oncemq.ledger.sql.array_literals import of_bytes, of_numbers, of_texts

TEXTS = [
    "plain",
    "",
    " ",
    "NULL",
    "null",
    '"',
    "\\",
    '\\"',
    "a,b",
    "{}",
    "{a",
    "é\n\t",
    "'",
    "\\x00",
    "%s",
    ":c0",
    None,
]


def read(postgresql_database: str, kind: str, literal: str) -> list[object]:
    """Return the elements of a literal."""
    engine = create_engine(postgresql_database)
    try:
        with engine.connect() as connection:
            return _elements(connection, kind, literal)
    finally:
        engine.dispose()


def _elements(connection: Connection, kind: str, literal: str) -> list[object]:
    every = text(f"SELECT v FROM unnest(CAST(:values AS {kind}[])) WITH ORDINALITY AS r(v, n) ORDER BY n")
    return list(connection.execute(every, {"values": literal}).scalars())


@pytest.mark.parametrize("texts", [TEXTS, [], [None], ['"\\' * 1000]])
def test_texts_are_read_as_they_were(postgresql_database: str, texts: list[str | None]) -> None:
    """Quotes, backslashes, braces and the word NULL are text; only None is NULL."""
    assert read(postgresql_database, "text", of_texts(texts)) == texts


def test_bytes_are_read_as_they_were(postgresql_database: str) -> None:
    """Every byte, also none at all."""
    every = [bytes(range(256)), b"", b'"\\', b"\\x00", b"x" * 100_000]
    assert [bytes(value) for value in read(postgresql_database, "bytea", of_bytes(every))] == every  # type: ignore[call-overload]


def test_numbers_are_read_as_they_were(postgresql_database: str) -> None:
    """Up to the largest number of a row, and none at all."""
    numbers = [0, 1, 2**63 - 1]
    assert read(postgresql_database, "bigint", of_numbers(numbers)) == numbers
    assert read(postgresql_database, "bigint", of_numbers([])) == []
