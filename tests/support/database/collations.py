"""Kinds of text columns that users have, with what their databases ignore when they compare."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.types import UserDefinedType

from oncemq.ledger.database.engine import make_engine
from support.database.shared_database import shared_database


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of text column.

    Args:
        database: whose.
        ddl: its type and collation.
        name: what people are told.
        ignores: what two equal texts may differ in.
        padded: it has a fixed width.
        limited: it has a length that the database keeps.
    """

    database: str
    ddl: str
    name: str = ""
    ignores: tuple[str, ...] = ()
    padded: bool = False
    limited: bool = True

    def __str__(self) -> str:
        return f"{self.database}-{self.ddl}".replace(" ", "_")


_ALL = ("case", "accents", "trailing blanks")
_BLANKS = ("trailing blanks",)

KINDS = (
    Kind("sqlite", "VARCHAR(40)", limited=False),
    Kind("sqlite", "VARCHAR(40) COLLATE NOCASE", "COLLATE NOCASE", ("case",), limited=False),
    Kind("sqlite", "TEXT COLLATE RTRIM", "COLLATE RTRIM", _BLANKS, limited=False),
    Kind("postgresql", "VARCHAR(40)"),
    Kind("postgresql", "CHAR(40)", "char(40)", _BLANKS, padded=True),
    Kind("postgresql", "citext", "citext", ("case",), limited=False),
    Kind("postgresql", "TEXT COLLATE folding", "folding", ("case", "accents"), limited=False),
    Kind("mariadb", "VARCHAR(40) COLLATE utf8mb4_nopad_bin"),
    Kind("mariadb", "VARCHAR(40) COLLATE utf8mb4_general_ci", "utf8mb4_general_ci", _ALL),
    Kind("mariadb", "VARCHAR(40) COLLATE utf8mb4_bin", "utf8mb4_bin", _BLANKS),
    Kind("mariadb", "CHAR(40) COLLATE utf8mb4_unicode_ci", "utf8mb4_unicode_ci", _ALL, padded=True),
    Kind("mariadb", "VARCHAR(40) COLLATE latin1_swedish_ci", "latin1_swedish_ci", _ALL),
)


def prepare(engine: Engine) -> None:
    """Make what the types of PostgreSQL need."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS citext"))
            connection.execute(
                text(
                    "CREATE COLLATION IF NOT EXISTS folding"
                    " (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
                )
            )


@contextmanager
def database_of(kind: Kind, request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Iterator[str]:
    """Lend the URL of an empty database in which tables with this kind of column can be made."""
    if kind.database == "sqlite":
        yield f"sqlite:///{folders.mktemp('kind')}/test.db"
        return
    with shared_database(request.getfixturevalue(f"{kind.database}_url")) as url:
        engine = make_engine(url)
        prepare(engine)
        engine.dispose()
        yield url


class Column(UserDefinedType[str]):
    """The type of a column as its DDL says it."""

    cache_ok = True

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl

    def get_col_spec(self, **_: object) -> str:
        """Return the DDL."""
        return self.ddl
