"""Alembic's autogenerate looks at the user's tables only."""

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, text

import oncemq.alembic
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine


@pytest.fixture
def proposals(database_url: str) -> Any:
    """Return what autogenerate proposes for a database with a ledger, a table of the user's and one that is no more."""
    engine = make_engine(database_url)
    schema.create(engine)
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True), Column("points", Integer))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY)"))
        connection.execute(text("CREATE TABLE old_orders (id INTEGER NOT NULL PRIMARY KEY)"))

    def propose(**options: Any) -> list[Any]:
        with engine.connect() as connection:
            return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    yield propose
    engine.dispose()


def test_the_ledger_is_left_alone(proposals: Any) -> None:
    """Only what the user's models and tables differ in is proposed."""
    found = proposals(include_name=oncemq.alembic.include_name)
    assert sorted((step[0], getattr(step[1], "name", None) or step[2]) for step in found) == [
        ("add_column", "orders"),
        ("remove_table", "old_orders"),
    ]


def test_without_it_the_ledger_would_be_dropped(proposals: Any) -> None:
    """This is what the function is for."""
    assert ("remove_table", "oncemq_processed") in [
        (step[0], getattr(step[1], "name", "")) for step in proposals()
    ]
