"""What two transactions side by side show of a database that only speaks the protocol of PostgreSQL or MariaDB."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from oncemq.errors import LedgerError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.side_by_side import examine

SHADOWS = {
    "advisory": "CREATE FUNCTION shadow.pg_try_advisory_xact_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true'",
    "rows": "CREATE VIEW shadow.oncemq_schema AS SELECT 1 AS version",
}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with a ledger."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


def test_real_ones_have_what_the_ledger_needs(engine: Engine) -> None:
    """And a lock of the try does not stay."""
    assert examine(engine, schema.VERSIONS) == []
    assert examine(engine, schema.VERSIONS) == []


@pytest.mark.server
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("advisory", "pg_advisory_xact_lock.. and locks nothing"),
        ("rows", "two transactions lock the same row"),
    ],
    ids=["advisory", "rows"],
)
def test_locks_that_lock_nothing_are_refused(postgresql_database: str, what: str, words: str) -> None:
    """As some databases have them that speak PostgreSQL's protocol: the call is accepted, and means nothing."""
    plain = make_engine(postgresql_database)
    schema.create(plain)
    with plain.begin() as connection:
        connection.execute(text("CREATE SCHEMA shadow"))
        connection.execute(text(SHADOWS[what]))
    other = make_engine(f"{postgresql_database}?options=-csearch_path%3Dshadow,pg_catalog,public")
    with pytest.raises(LedgerError, match=words):
        examine(other, schema.VERSIONS)
    plain.dispose()
    other.dispose()


@pytest.mark.server
def test_another_isolation_level_is_refused(postgresql_database: str) -> None:
    """Such as that of a database which knows only one, and accepts every other by its name."""
    engine = create_engine(postgresql_database, isolation_level="SERIALIZABLE")
    with pytest.raises(LedgerError, match="runs transactions as SERIALIZABLE"):
        examine(engine, schema.VERSIONS)
    engine.dispose()
