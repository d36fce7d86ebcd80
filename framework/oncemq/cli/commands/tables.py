"""`oncemq tables`: manages the framework's own tables in the app's database."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from sqlalchemy import Engine, Table

from oncemq.alembic import write_revision
from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.operator_options import signed
from oncemq.cli.output import confirm, warn
from oncemq.config import load
from oncemq.contracts.moving import MoveRules
from oncemq.engine.group_ownership import in_words, left_names
from oncemq.engine.plan import AppPlan
from oncemq.engine.pruning import prune_left
from oncemq.errors import ConfigError, OnceMQError
from oncemq.ledger import schema
from oncemq.ledger.coordination import shards
from oncemq.ledger.database import probe
from oncemq.ledger.database.connect import place
from oncemq.ledger.generations import rotation
from oncemq.operate import moving, splitting
from oncemq.operate.auditing import Operator, Trail, selection
from oncemq.operate.moving import Count, Move
from oncemq.registry import did_you_mean
from oncemq.upkeep.generations import begin_all

_NO_DATABASE = 'the app has no database, so there are no tables: add database: {url: "sqlite:///app.db"}'

_CHANGES = frozenset({"copied", "inserted", "dropped"})


@click.group(
    epilog="""\b
Examples:
  oncemq tables create
  oncemq tables sql > ledger.sql        # for people who run DDL themselves
  oncemq tables upgrade                 # after installing a newer OnceMQ
  oncemq tables move judge --preview    # states of the ledger into your table
  oncemq tables split --preview         # after copying a database to shards
  oncemq tables prune                   # what is left of consumers that are gone
  oncemq tables alembic migrations/versions   # a branch of your own migrations
  oncemq tables restored                # after restoring the database from a backup
"""
)
def tables() -> None:
    """Create, upgrade, drop or print the ledger's tables.

    All are called oncemq_…; yours are never touched.
    """


@tables.command()
@signed
@app_option
def create(files: Sequence[Path], operator: Operator) -> int:
    """Create missing tables; does nothing if all exist."""
    plan = _database(files)
    done = [_at(plan, engine, f"created {name}") for engine, name in _each(plan, schema.create)]
    done += _begun(plan)
    done += shards.create(plan.engines, plan.name, plan.layout)
    _note(plan, operator, "create", done)
    _tell(done, "all tables are there already")
    return OK


@tables.command()
@signed
@app_option
def upgrade(files: Sequence[Path], operator: Operator) -> int:
    """Bring the tables to what this version of OnceMQ needs, and shards to the slots that you gave them."""
    plan = _database(files)
    done = [_at(plan, engine, line) for engine, line in _each(plan, schema.upgrade)]
    done += _begun(plan)
    done += shards.upgrade(plan.engines, plan.name, plan.layout)
    _note(plan, operator, "upgrade", done)
    _tell(done, "nothing to upgrade")
    return OK


@tables.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@app_option
def drop(files: Sequence[Path], yes: bool) -> int:
    """Drop the ledger with everything in it, its audit trail too; redelivered messages will then be applied again."""
    plan = _database(files)
    if not yes:
        place = " and ".join(engine.url.render_as_string(hide_password=True) for engine in plan.engines)
        confirm(
            f"Drop every oncemq_ table in {place}? What was applied is forgotten, and may be applied again"
        )
    if plan.generations:
        for engine in plan.engines:
            rotation.drop_all(engine)
    dropped = [_at(plan, engine, f"dropped {name}") for engine, name in _each(plan, schema.drop)]
    _tell(dropped, "there are no tables")
    return OK


@tables.command()
@signed
@app_option
def restored(files: Sequence[Path], operator: Operator) -> int:
    """Declare that the database was restored from a backup, before the app starts again.

    Marks in Redis of applied messages are not trusted any more, since the backup may not contain them.
    """
    plan = _database(files)
    done = [_at(plan, engine, line) for engine, line in _each(plan, schema.restored)]
    _note(plan, operator, "restored", done)
    _tell(done, "")
    return OK


@tables.command()
@click.argument("consumer")
@click.option("--preview", is_flag=True, help="Only show what would come of it.")
@click.option(
    "--differing",
    type=click.Choice(["ledger", "table"]),
    help="Where your table says something else: what the ledger says replaces it, or yours stays.",
)
@click.option(
    "--missing",
    type=click.Choice(["insert", "drop"]),
    help="Where your table has no row: insert one with key and state, or drop the state.",
)
@signed
@app_option
def move(
    files: Sequence[Path],
    consumer: str,
    differing: str | None,
    missing: str | None,
    operator: Operator,
    *,
    preview: bool,
) -> int:
    """Move what the ledger has of CONSUMER into the table of yours that its strategies read now.

    Write the new configuration, stop the app, run this command, start the app. Nothing is written while it is not clear what
    becomes of each row. A command that was killed is simply run again; the ledger keeps all rows until every one of them is in
    your table, and until then the former configuration can run as before.

    Exit code 1: some rows differ, or are missing, and it is not said what becomes of them.
    """
    plan = _database(files)
    moves = moving.moves_of(plan, consumer)
    moving.refuse_running(plan)
    rules = MoveRules(
        None if differing is None else differing == "ledger", None if missing is None else missing == "insert"
    )
    counts = [(each, each.preview(rules)) for each in moves]
    for each, count in counts:
        _tell_move(plan, each, count, "would be " if preview or count.obstacles else "")
    if any(count.obstacles for _, count in counts):
        warn(
            "nothing was written: correct these rows, or say what becomes of them by --differing and --missing"
        )
        return FAILED
    if preview:
        return OK
    done = []
    for each, _ in counts:
        each.copy(rules)
        deleted = each.finish(rules)
        done.append(_at(plan, each.engine, f"deleted {deleted} {each.what.what}s of the ledger"))
    _note(plan, operator, f"move {consumer}", done)
    _tell(done, "")
    return OK


@tables.command()
@click.option("--preview", is_flag=True, help="Only show what would be deleted.")
@click.option(
    "--table",
    "tables_of_users",
    multiple=True,
    metavar="TABLE=COLUMN",
    help="A table of yours, and its column with the message's key: its rows are divided, too.",
)
@signed
@app_option
def split(files: Sequence[Path], tables_of_users: Sequence[str], operator: Operator, *, preview: bool) -> int:
    """Leave on each shard only the rows that belong there, after a database was copied to several.

    Stop the app, copy the whole database with its own tools, write the shards into the configuration, run this command, start the
    app. A row is deleted only where the shard that it belongs to has it. A command that was killed is simply run again.
    """
    plan = _database(files)
    named = dict(entry.partition("=")[::2] for entry in tables_of_users)
    if not all(named.values()):
        raise click.UsageError("write --table TABLE=COLUMN, with the column that has the message's key")
    moving.refuse_running(plan)
    found = [part for part in splitting.split(plan, named, keep=not preview) if part.stays or part.goes]
    word = "would be deleted" if preview else "deleted"
    done = [f"{place(part.engine)}: {part.table} {part.stays} stay, {part.goes} {word}" for part in found]
    if not preview:
        _note(plan, operator, "split", done)
    _tell(done, "there are no rows")
    return OK


@tables.command()
@click.argument("names", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@signed
@app_option
def prune(files: Sequence[Path], names: tuple[str, ...], operator: Operator, yes: bool) -> int:
    """Delete the remains of removed consumers called NAMES; without names, list them.

    Records, parked messages, claims, dead letters and history go, and the queues that no consumer reads any more, with what
    lies in them. For a consumer that was renamed write `formerly:` instead, and nothing is left.
    """
    plan = _database(files)
    left = {found.scope.partition(".")[2]: found for found in left_names(plan)}
    if not names:
        _tell(
            [in_words(found) for found in left.values()],
            "nothing is left of consumers that the app has no more",
        )
        return OK
    for name in names:
        if name not in left:
            has = (
                f"{name} is a consumer of this app"
                if name in {planned.name for planned in plan.consumers}
                else "nothing is left"
            )
            raise ConfigError([f"{has}: nothing to prune of {name!r}{did_you_mean(name, list(left))}"])
    if not yes:
        confirm(f"Permanently remove the remains of {', '.join(names)}?")
    trail = Trail(plan, operator, "tables prune")
    for name in names:
        with trail.step(plan.name, {"": 0}, name) as step:
            _tell(prune_left(plan, left[name]), "")
            step.count = sum(left[name].rows.values())
    return OK


@tables.command()
@app_option
def sql(files: Sequence[Path]) -> int:
    """Print the statements of `create` for an empty database; connects to nothing."""
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([_NO_DATABASE])
    click.echo(schema.sql(plan.engine.dialect.name, plan.tables()), nl=False)
    return OK


@tables.command()
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@app_option
def alembic(files: Sequence[Path], folder: Path) -> int:
    """Write the ledger as a revision into FOLDER, where your own migrations are; then `alembic upgrade heads`.

    The first one begins a branch with the label `oncemq`. Call it again after an update of OnceMQ: it writes the next
    revision if the ledger has changed.
    """
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([_NO_DATABASE])
    own = {table.name for table in plan.tables()} - {table.name for table in schema.TABLES}
    if own or plan.layout is not None:
        what = f"tables of other packages ({', '.join(sorted(own))})" if own else "several shards"
        raise ConfigError(
            [f"the app has {what}, which a revision does not cover: run `oncemq tables upgrade`"]
        )
    try:
        path = write_revision(folder)
    except OSError as error:
        raise OnceMQError(f"cannot write into {folder}: {error.strerror or error}") from error
    click.echo(
        f"wrote {path}; run: alembic upgrade heads"
        if path
        else "nothing to write: the ledger has not changed"
    )
    return OK


def _database(files: Sequence[Path]) -> AppPlan:
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError([_NO_DATABASE])
    for engine in plan.engines:
        click.get_current_context().call_on_close(engine.dispose)
        probe.prove(engine)
    return plan


def _each(
    plan: AppPlan, work: Callable[[Engine, Sequence[Table]], Sequence[str]]
) -> Iterator[tuple[Engine, str]]:
    """Run it on every database; yields each line with the database it is about."""
    for engine in plan.engines:
        for line in work(engine, plan.tables()):
            yield engine, line


def _begun(plan: AppPlan) -> list[str]:
    return [
        _at(plan, engine, f"created {line}")
        for engine in plan.engines
        for line in begin_all(engine, plan.generations)
    ]


def _at(plan: AppPlan, engine: Engine, line: str) -> str:
    """Add the shard's name, if there are several."""
    return f"{line} in {place(engine)}" if plan.layout is not None else line


def _tell_move(plan: AppPlan, moved: Move, count: Count, would: str) -> None:
    target, what = moved.what.target, f"{count.rows} {moved.what.what}s"
    parts = {
        "copied": count.written,
        "inserted": count.inserted,
        "equal already": count.equal,
        "left as your table has them": count.kept,
        "dropped": count.given_up,
        "not clear": count.obstacles,
    }
    words = ", ".join(
        f"{number} {would if name in _CHANGES else ''}{name}" for name, number in parts.items() if number
    )
    click.echo(_at(plan, moved.engine, f"{target}: {what}{f' – {words}' if words else ''}"))
    for line in count.examples:
        warn(f"  {line}")
    if count.obstacles > len(count.examples):
        warn(f"  and {count.obstacles - len(count.examples)} more")


def _note(plan: AppPlan, operator: Operator, command: str, done: Sequence[str]) -> None:
    if done:
        Trail(plan, operator, f"tables {command}").noted(selection("", done=tuple(done)), len(done))


def _tell(lines: Sequence[str], nothing: str) -> None:
    for line in lines or (nothing,):
        click.echo(line)
