"""The ledger's schema: create, upgrade, drop, print and check its tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import uuid4

from sqlalchemy import (
    Column,
    Connection,
    Dialect,
    Engine,
    Integer,
    String,
    Table,
    func,
    insert,
    inspect,
    literal,
    make_url,
    select,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from oncemq.common.clock import SystemClock
from oncemq.errors import LedgerError
from oncemq.ledger.coordination import broadcast, groups, leases, pauses, recordings, reloads, shards, workers
from oncemq.ledger.database import rights
from oncemq.ledger.database.connect import READ_ONLY, place
from oncemq.ledger.database.schema_lock import changing_schema, wait_for_schema
from oncemq.ledger.messages import dead_letters, delayed, outbox, parking, transactions
from oncemq.ledger.records import (
    audit,
    claims,
    configurations,
    final_failures,
    history,
    key_fingerprints,
    processed,
    requests,
    sequences,
    states,
    suspects,
)
from oncemq.ledger.records import (
    exclusive_units as lanes,
)
from oncemq.ledger.records import (
    row_mutexes as locked_rows,
)
from oncemq.ledger.sql.column_types import Moment
from oncemq.ledger.sql.tables import ledger_table


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from the previous version to `version`; new tables need none, they are created.

    Args:
        version: the ledger's version after it.
        what: a short description of the change.
        statements: the SQL that a database still needs; asked again after a failure half-way.
    """

    version: int
    what: str
    statements: Callable[[Connection], Sequence[str]]


FIRST_VERSION = 1

MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "oncemq_audit has what came of a change", audit.outcome_columns),
)
"""Sorted by version, without gaps, beginning with `FIRST_VERSION + 1`."""


VERSIONS = ledger_table(
    "schema",
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("what", String(200), nullable=False),
    Column("applied_at", Moment, nullable=False),
)
"""One row for each version that the ledger has had, and one with a negative number for each restore."""

_RESTORED = "restored"

TABLES: tuple[Table, ...] = (
    processed.TABLE,
    shards.TABLE,
    broadcast.TABLE,
    claims.TABLE,
    groups.TABLE,
    states.TABLE,
    sequences.TABLE,
    parking.TABLE,
    key_fingerprints.TABLE,
    suspects.TABLE,
    history.TABLE,
    dead_letters.TABLE,
    final_failures.TABLE,
    delayed.TABLE,
    lanes.TABLE,
    leases.TABLE,
    locked_rows.TABLE,
    outbox.TABLE,
    pauses.TABLE,
    recordings.TABLE,
    recordings.RECORDED,
    audit.TABLE,
    configurations.TABLE,
    configurations.NOTES,
    reloads.REQUESTS,
    reloads.SUPERVISORS,
    requests.TABLE,
    transactions.TABLE,
    workers.TABLE,
)
"""A new table is one file and one line here."""


def create(engine: Engine, strategies_tables: Sequence[Table] = ()) -> list[str]:
    """Create missing tables; returns the names of the created ones.

    Args:
        engine: the app's database.
        strategies_tables: further tables of the app's strategies, from `Strategy.tables`.

    Raises:
        LedgerError: the ledger exists in another version.
    """
    with changing_schema(engine) as connection:
        current = _version(connection)
        if current is not None and current != _newest(MIGRATIONS):
            raise LedgerError(_other_version(engine, current, _newest(MIGRATIONS)))
        created = _create_missing(connection, strategies_tables)
        if current is None:
            _note(connection, _newest(MIGRATIONS), "created")
    return created


def upgrade(
    engine: Engine, strategies_tables: Sequence[Table] = (), migrations: Sequence[Migration] = MIGRATIONS
) -> list[str]:
    """Upgrade the ledger to the newest version; returns one line for each step done.

    Raises:
        LedgerError: the ledger is newer than this version of OnceMQ.
    """
    done: list[str] = []
    with engine.begin() as connection:
        current = _version(connection)
    if current is not None and current > _newest(migrations):
        raise LedgerError(_other_version(engine, current, _newest(migrations)))
    for migration in migrations:
        with changing_schema(engine) as connection:
            # Another process may have done this step meanwhile.
            current = _version(connection)
            if current is None or migration.version <= current:
                continue
            for statement in migration.statements(connection):
                connection.exec_driver_sql(statement)
            _note(connection, migration.version, migration.what)
        done.append(f"version {migration.version}: {migration.what}")
    with changing_schema(engine) as connection:
        current = _version(connection)
        done += [f"created {name}" for name in _create_missing(connection, strategies_tables)]
        if current is None:
            _note(connection, _newest(migrations), "created")
    return done


def upgrade_within(connection: Connection) -> list[str]:
    """Do the same in the caller's transaction, which serializes it; returns one line for each step done.

    Raises:
        LedgerError: the ledger is newer than this version of OnceMQ.
    """
    if connection.dialect.name == "postgresql":
        wait_for_schema(connection)
    current = _version(connection)
    if current is not None and current > _newest(MIGRATIONS):
        raise LedgerError(_other_version(connection.engine, current, _newest(MIGRATIONS)))
    done: list[str] = []
    for migration in MIGRATIONS:
        if current is None or migration.version <= current:
            continue
        for statement in migration.statements(connection):
            connection.exec_driver_sql(statement)
        _note(connection, migration.version, migration.what)
        done.append(f"version {migration.version}: {migration.what}")
    done += [f"created {name}" for name in _create_missing(connection, ())]
    if current is None:
        _note(connection, _newest(MIGRATIONS), "created")
    return done


def mark() -> tuple[int, str]:
    """Return the ledger's version, and a short text that changes when this version of OnceMQ has other tables."""
    names = " ".join(sorted(table.name for table in _all(())))
    return _newest(MIGRATIONS), blake2b(names.encode(), digest_size=4).hexdigest()


def drop(engine: Engine, strategies_tables: Sequence[Table] = ()) -> list[str]:
    """Drop all tables of the ledger with their contents; returns their names."""
    with changing_schema(engine) as connection:
        present = set(inspect(connection).get_table_names())
        doomed = [table for table in _all(strategies_tables) if table.name in present]
        for table in doomed:
            table.drop(connection)
    return [table.name for table in doomed]


def sql(dialect: str, strategies_tables: Sequence[Table] = ()) -> str:
    """Return the statements that `create` would execute on an empty database, for users who run DDL themselves.

    Args:
        dialect: `postgresql`, `mysql`, `mariadb` or `sqlite`.
        strategies_tables: as for `create`.
    """
    made: Dialect = make_url(f"{dialect}://").get_dialect()()
    statements: list[str] = []
    for table in _all(strategies_tables):
        statements.append(str(CreateTable(table).compile(dialect=made)).strip())
        indexes = sorted(table.indexes, key=lambda index: index.name or "")
        statements += [str(CreateIndex(index).compile(dialect=made)).strip() for index in indexes]
    version = insert(VERSIONS).values(
        version=literal(_newest(MIGRATIONS)), what=literal("created"), applied_at=func.current_timestamp()
    )
    statements.append(str(version.compile(dialect=made, compile_kwargs={"literal_binds": True})))
    return ";\n\n".join(statements) + ";\n"


def ensure(engine: Engine, strategies_tables: Sequence[Table] = ()) -> None:
    """Check that the ledger exists, complete and in this version.

    Raises:
        LedgerError: it does not; says which command to run.
    """
    try:
        with engine.begin() as connection:
            current = _version(connection)
            present = set(inspect(connection).get_table_names())
    except DBAPIError as error:
        if not rights.is_denied(error):
            raise
        insist_on_rights(engine, strategies_tables)
        raise
    if current is None:
        raise LedgerError(f"the ledger's tables are missing in {place(engine)}: run `oncemq tables create`")
    if current != _newest(MIGRATIONS):
        raise LedgerError(_other_version(engine, current, _newest(MIGRATIONS)))
    missing = [table.name for table in _all(strategies_tables) if table.name not in present]
    if missing:
        raise LedgerError(
            f"{', '.join(missing)} missing in {place(engine)}: run `oncemq tables create`, which adds what is missing"
        )


def insist_on_rights(engine: Engine, strategies_tables: Sequence[Table] = ()) -> None:
    """Check that the account may read and write the ledger's tables.

    Raises:
        LedgerError: a right is missing, or the database is read-only; says what an administrator must do.
    """
    rights.insist(engine, _all(strategies_tables), VERSIONS)


def birth(engine: Engine) -> str:
    """Return a short text that changes when the ledger is recreated or restored; empty without a ledger."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        if not inspect(connection).has_table(VERSIONS.name):
            return ""
        born = connection.execute(select(func.min(VERSIONS.c.applied_at)).where(VERSIONS.c.version > 0))
        text, restored = str(born.scalar()), _restored(connection)
    return blake2b((text + restored).encode(), digest_size=4).hexdigest()


def epoch(engine: Engine) -> str:
    """Return a short text that changes with each restore; empty if the ledger was never restored."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        if not inspect(connection).has_table(VERSIONS.name):
            return ""
        restored = _restored(connection)
    return blake2b(restored.encode(), digest_size=4).hexdigest() if restored else ""


def restored(engine: Engine, strategies_tables: Sequence[Table] = ()) -> list[str]:
    """Record that the database was restored from a backup; returns a line that says so.

    Data about this ledger written elsewhere before, such as marks in Redis, is not trusted any more.

    Raises:
        LedgerError: the ledger does not exist, or has another version.
    """
    ensure(engine, strategies_tables)
    with engine.begin() as connection:
        note_restored(connection)
    return ["older marks and flags are no longer trusted"]


def note_restored(connection: Connection) -> None:
    """Record, in the caller's transaction, that the database was restored."""
    lowest = connection.execute(select(func.min(VERSIONS.c.version))).scalar() or 0
    # Random: two restores of the same backup must not get the same number.
    _note(connection, min(lowest, 0) - 1, f"{_RESTORED} {uuid4().hex}")


def _restored(connection: Connection) -> str:
    """Return the id of the last restore; empty if there was none."""
    rows = select(VERSIONS.c.what).where(VERSIONS.c.version < 0).order_by(VERSIONS.c.version).limit(1)
    return str(connection.execute(rows).scalar() or "")


def _all(more: Iterable[Table]) -> list[Table]:
    """Return every table once: those of strategies are often copies of the ledger's own."""
    return list({table.name: table for table in (VERSIONS, *more, *TABLES)}.values())


def _create_missing(connection: Connection, more: Iterable[Table]) -> list[str]:
    present = set(inspect(connection).get_table_names())
    missing = [table for table in _all(more) if table.name not in present]
    for table in missing:
        table.create(connection)
    return [table.name for table in missing]


def _version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(VERSIONS.name):
        return None
    version: int | None = connection.execute(select(func.max(VERSIONS.c.version))).scalar()
    return version


def _note(connection: Connection, version: int, what: str) -> None:
    connection.execute(insert(VERSIONS).values(version=version, what=what, applied_at=SystemClock().now()))


def _newest(migrations: Sequence[Migration]) -> int:
    return migrations[-1].version if migrations else FIRST_VERSION


def _other_version(engine: Engine, current: int, wanted: int) -> str:
    if current > wanted:
        return (
            f"the ledger in {place(engine)} has version {current}, but this OnceMQ knows only {wanted}: "
            "install the newer OnceMQ that the other processes run"
        )
    return (
        f"the ledger in {place(engine)} has version {current}, but this OnceMQ needs {wanted}: "
        "run `oncemq tables upgrade`; processes that run already go on"
    )
