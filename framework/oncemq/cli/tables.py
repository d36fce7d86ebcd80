"""`oncemq tables`: the framework's own tables in the app's database."""

from collections.abc import Sequence
from pathlib import Path

import click
from sqlalchemy import Engine

from oncemq.cli.exit_codes import OK
from oncemq.cli.files import app_option
from oncemq.config import load
from oncemq.errors import ConfigError
from oncemq.ledger import probe, schema
from oncemq.run.application import tables_of
from oncemq.run.plan import AppPlan

_NO_DATABASE = 'the app has no database, so there are no tables: add database: {url: "sqlite:///app.db"}'


@click.group(
    epilog="""\b
Examples:
  oncemq tables create
  oncemq tables sql > ledger.sql        # for people who run DDL themselves
  oncemq tables upgrade                 # after installing a newer OnceMQ
"""
)
def tables() -> None:
    """Create, upgrade, drop or print the ledger's tables.

    All are called oncemq_…; yours are never touched.
    """


@tables.command()
@app_option
def create(files: Sequence[Path]) -> int:
    """Create what is missing; does nothing when all is there."""
    plan, engine = _database(files)
    created = schema.create(engine, tables_of(plan))
    _tell([f"created {name}" for name in created], "all tables are there already")
    return OK


@tables.command()
@app_option
def upgrade(files: Sequence[Path]) -> int:
    """Bring the tables to what this version of OnceMQ needs."""
    plan, engine = _database(files)
    _tell(schema.upgrade(engine, tables_of(plan)), "nothing to upgrade")
    return OK


@tables.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@app_option
def drop(files: Sequence[Path], yes: bool) -> int:
    """Drop the ledger with everything in it; messages that come again will then be applied again."""
    plan, engine = _database(files)
    if not yes:
        place = engine.url.render_as_string(hide_password=True)
        click.confirm(
            f"Drop every oncemq_ table in {place}? What was applied is forgotten, and may be applied again",
            abort=True,
        )
    _tell([f"dropped {name}" for name in schema.drop(engine, tables_of(plan))], "there are no tables")
    return OK


@tables.command()
@app_option
def sql(files: Sequence[Path]) -> int:
    """Print the statements of `create` for an empty database; connects to nothing."""
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([_NO_DATABASE])
    click.echo(schema.sql(plan.engine.dialect.name, tables_of(plan)), nl=False)
    return OK


def _database(files: Sequence[Path]) -> tuple[AppPlan, Engine]:
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([_NO_DATABASE])
    probe.prove(plan.engine)
    return plan, plan.engine


def _tell(lines: Sequence[str], nothing: str) -> None:
    for line in lines or (nothing,):
        click.echo(line)
