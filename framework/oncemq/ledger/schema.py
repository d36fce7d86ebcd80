"""The ledger's tables as a whole: create, upgrade, drop, print, and make sure that they are there."""

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
from sqlalchemy.schema import CreateIndex, CreateTable

from oncemq.common.clock import SystemClock
from oncemq.errors import LedgerError
from oncemq.ledger.coordination import groups, leases, shards, workers
from oncemq.ledger.database.connect import READ_ONLY, place
from oncemq.ledger.messages import dead_letters, outbox, parking, transactions
from oncemq.ledger.records import (
    claims,
    history,
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
    place_fingerprints as place_prints,
)
from oncemq.ledger.records import (
    row_mutexes as locked_rows,
)
from oncemq.ledger.sql.column_types import Moment
from oncemq.ledger.sql.tables import ledger_table


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from the version before to `version`; tables that are new need none, they are created.

    Args:
        version: the version that the ledger has afterwards.
        what: what changes, in a few words.
        statements: the SQL for a dialect; each must bear running again after a failure half-way.
    """

    version: int
    what: str
    statements: Callable[[Dialect], Sequence[str]]


FIRST_VERSION = 1

MIGRATIONS: tuple[Migration, ...] = ()
"""In order of version, without gaps, beginning with `FIRST_VERSION + 1`."""


VERSIONS = ledger_table(
    "schema",
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("what", String(200), nullable=False),
    Column("applied_at", Moment, nullable=False),
)
"""One row for each version that the ledger has had, and one with a number below zero for each restore."""

_RESTORED = "restored"

TABLES: tuple[Table, ...] = (
    processed.TABLE,
    shards.TABLE,
    claims.TABLE,
    groups.TABLE,
    states.TABLE,
    sequences.TABLE,
    parking.TABLE,
    place_prints.TABLE,
    suspects.TABLE,
    history.TABLE,
    dead_letters.TABLE,
    lanes.TABLE,
    leases.TABLE,
    locked_rows.TABLE,
    outbox.TABLE,
    requests.TABLE,
    transactions.TABLE,
    workers.TABLE,
)
"""A new table is one file and one line here."""


def create(engine: Engine, strategies_tables: Sequence[Table] = ()) -> list[str]:
    """Create what is missing; returns the names of the tables that were created.

    Args:
        engine: the app's database.
        strategies_tables: what the app's strategies need besides, from `Strategy.tables`.

    Raises:
        LedgerError: the ledger is there in another version.
    """
    with engine.begin() as connection:
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
    """Bring the ledger to the newest version; returns what was done, one line for each step.

    Raises:
        LedgerError: the ledger is newer than this version of OnceMQ.
    """
    done: list[str] = []
    with engine.begin() as connection:
        current = _version(connection)
    if current is not None and current > _newest(migrations):
        raise LedgerError(_other_version(engine, current, _newest(migrations)))
    for migration in migrations:
        if current is not None and migration.version > current:
            with engine.begin() as connection:
                for statement in migration.statements(connection.dialect):
                    connection.exec_driver_sql(statement)
                _note(connection, migration.version, migration.what)
            done.append(f"version {migration.version}: {migration.what}")
    with engine.begin() as connection:
        done += [f"created {name}" for name in _create_missing(connection, strategies_tables)]
        if current is None:
            _note(connection, _newest(migrations), "created")
    return done


def drop(engine: Engine, strategies_tables: Sequence[Table] = ()) -> list[str]:
    """Drop every table of the ledger, with everything in it; returns their names."""
    with engine.begin() as connection:
        present = set(inspect(connection).get_table_names())
        doomed = [table for table in _all(strategies_tables) if table.name in present]
        for table in doomed:
            table.drop(connection)
    return [table.name for table in doomed]


def sql(dialect: str, strategies_tables: Sequence[Table] = ()) -> str:
    """Return the statements that `create` would execute on an empty database, for people who run DDL themselves.

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
    """Make sure that the ledger is there, whole and of this version.

    Raises:
        LedgerError: it is not; says what to type.
    """
    with engine.begin() as connection:
        current = _version(connection)
        present = set(inspect(connection).get_table_names())
    if current is None:
        raise LedgerError(f"the ledger's tables are missing in {place(engine)}: run `oncemq tables create`")
    if current != _newest(MIGRATIONS):
        raise LedgerError(_other_version(engine, current, _newest(MIGRATIONS)))
    missing = [table.name for table in _all(strategies_tables) if table.name not in present]
    if missing:
        raise LedgerError(
            f"{', '.join(missing)} missing in {place(engine)}: run `oncemq tables create`, which adds what is missing"
        )


def birth(engine: Engine) -> str:
    """Return a short text that is another one where the ledger was made anew or restored; empty without a ledger."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        if not inspect(connection).has_table(VERSIONS.name):
            return ""
        born = connection.execute(select(func.min(VERSIONS.c.applied_at)).where(VERSIONS.c.version > 0))
        text, restored = str(born.scalar()), _restored(connection)
    return blake2b((text + restored).encode(), digest_size=4).hexdigest()


def epoch(engine: Engine) -> str:
    """Return a short text that is another one after each restore; empty where the ledger never was restored."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        if not inspect(connection).has_table(VERSIONS.name):
            return ""
        restored = _restored(connection)
    return blake2b(restored.encode(), digest_size=4).hexdigest() if restored else ""


def restored(engine: Engine, strategies_tables: Sequence[Table] = ()) -> list[str]:
    """Note that the database was restored from a backup; returns a line that says so.

    What was written elsewhere about this ledger before, such as marks in Redis, is believed no more.

    Raises:
        LedgerError: the ledger is not there, or of another version.
    """
    ensure(engine, strategies_tables)
    with engine.begin() as connection:
        note_restored(connection)
    return ["marks and flags from before are believed no more"]


def note_restored(connection: Connection) -> None:
    """Note, in the caller's transaction, that the database was restored."""
    lowest = connection.execute(select(func.min(VERSIONS.c.version))).scalar() or 0
    # Random: two restores of one backup must not count to the same number.
    _note(connection, min(lowest, 0) - 1, f"{_RESTORED} {uuid4().hex}")


def _restored(connection: Connection) -> str:
    """Return what the last restore is called; empty where there was none."""
    rows = select(VERSIONS.c.what).where(VERSIONS.c.version < 0).order_by(VERSIONS.c.version).limit(1)
    return str(connection.execute(rows).scalar() or "")


def _all(more: Iterable[Table]) -> list[Table]:
    """Return every table once: those of strategies are often the ledger's own, copied."""
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
        "stop the app's processes and type `oncemq tables upgrade`"
    )
