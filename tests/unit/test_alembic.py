"""Alembic's autogenerate looks at the user's tables only."""

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from click.testing import CliRunner
from sqlalchemy import Column, Integer, MetaData, Table, inspect, text

import oncemq.alembic
from oncemq.cli.main import oncemq as oncemq_program
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


_ENV = """
import os
from alembic import context
from sqlalchemy import create_engine
engine = create_engine(os.environ["MIGRATED"])
with engine.connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""

_MINE = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "mine", None, None, None
def upgrade() -> None:
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
"""


@pytest.fixture
def migrations(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return a team's migrations with one revision, and an app beside them."""
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    (tmp_path / "migrations" / "env.py").write_text(_ENV)
    (versions / "mine.py").write_text(_MINE)
    (tmp_path / "app.yaml").write_text(
        f"app: shop\nbrokers: {{local: {{url: 'embedded:///b.db'}}}}\ndatabase: {{url: {database_url!r}}}\n"
    )
    monkeypatch.setenv("MIGRATED", database_url)
    monkeypatch.chdir(tmp_path)
    config = Config()
    config.set_main_option("script_location", str(tmp_path / "migrations"))
    return config


def _tables_alembic() -> str:
    return (
        CliRunner()
        .invoke(oncemq_program, ["tables", "alembic", "migrations/versions"], catch_exceptions=False)
        .output
    )


def test_the_ledger_is_a_branch_of_the_teams_own_migrations(migrations: Config, database_url: str) -> None:
    """`alembic upgrade heads` makes both; what it has made is complete, and a second call writes nothing."""
    assert "oncemq_0001_ledger.py" in _tables_alembic()
    command.upgrade(migrations, "heads")
    command.upgrade(migrations, "heads")
    engine = make_engine(database_url)
    schema.ensure(engine)
    assert inspect(engine).has_table("orders")
    assert schema.upgrade(engine) == []
    engine.dispose()
    assert "nothing to write" in _tables_alembic()


def test_a_changed_ledger_is_the_next_revision_of_the_branch(
    migrations: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows the first one, whose label the branch keeps."""
    _tables_alembic()
    monkeypatch.setattr(schema, "mark", lambda: (2, "0badcafe"))
    assert "oncemq_0002_ledger.py" in _tables_alembic()
    script = ScriptDirectory.from_config(migrations)
    assert script.get_revision("oncemq@head").revision == "oncemq_0002"
    assert sorted(script.get_heads()) == ["mine", "oncemq_0002"]
