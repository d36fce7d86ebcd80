"""Opens, seals, retires and drops generations; each step is one transaction."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, Engine, delete, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError

from oncemq.errors import LedgerError
from oncemq.ledger.database.schema_lock import changing_schema
from oncemq.ledger.database.server_clock import server_moment, server_time
from oncemq.ledger.generations.registry import TABLE, create_table, table_name
from oncemq.retry.classify import is_lock_timeout

DROP_AFTER: Final = timedelta(minutes=1)
"""Time from retiring a generation to dropping its table; every running process has read the list again by then."""
SHORTEST_WAIT: Final = timedelta(milliseconds=100)
LONGEST_WAIT: Final = timedelta(milliseconds=3200)
"""The longest that a rotation waits for units that are running, while new ones wait behind it."""
_BEGIN_WAIT: Final = timedelta(seconds=10)

STEPS: Final = ("locked", "created", "barrier", "sealed", "opened")
"""Steps of a rotation, for tests that kill the process after one of them."""

_T = TABLE.c
_REFUSE: Final = """
CREATE OR REPLACE FUNCTION oncemq_refuse_flat_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'consumer % keeps its records in generations: write ledger: {generations: 1d} for every process of the app', NEW.consumer
        USING ERRCODE = 'insufficient_privilege';
END $$
"""


def _silent(_step: str) -> None: ...


def begin(engine: Engine, consumer: str) -> bool:
    """Give a consumer its first generation, if it has none; its records so far become the oldest.

    Returns:
        Whether it had none.

    Raises:
        LedgerError: transactions that insert into the old table did not end in time.
    """
    with changing_schema(engine) as connection:
        if connection.execute(select(_T.id).where(_T.consumer == consumer).limit(1)).first() is not None:
            return False
        _wait_at_most(connection, _BEGIN_WAIT)
        connection.execute(text(_REFUSE))
        try:
            _refuse_in_old_table(connection, consumer)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            raise LedgerError(
                f"{consumer} cannot begin generations: transactions that write oncemq_processed did not end within "
                f"{_BEGIN_WAIT.seconds} s. Stop the app's processes, and try again"
            ) from error
        now = server_time(connection)
        old = {"consumer": consumer, "legacy": True, "opened_at": now, "sealed_at": now}
        connection.execute(insert(TABLE).values(**old))
        number = _next_number(connection)
        create_table(connection, number)
        connection.execute(insert(TABLE).values(id=number, consumer=consumer, legacy=False, opened_at=now))
    return True


def rotate(
    engine: Engine,
    consumer: str,
    every: timedelta,
    *,
    wait: timedelta = SHORTEST_WAIT,
    done: Callable[[str], None] = _silent,
) -> bool | None:
    """Seal the open generation and open the next, if the open one is old enough.

    Args:
        engine: the app's database.
        consumer: the ledger scope.
        every: how long a generation is open.
        wait: how long to wait for units that are running; new ones wait behind it.
        done: called after each of `STEPS`.

    Returns:
        Whether it rotated; None if it is due, but units did not end in time: try again.
    """
    try:
        with engine.begin() as connection:
            _wait_at_most(connection, wait)
            due = server_moment(engine.dialect, every)
            open_one = select(_T.id).where(
                _T.consumer == consumer, _T.sealed_at.is_(None), _T.opened_at <= due
            )
            number = connection.execute(open_one.with_for_update()).scalar()
            if number is None:
                return False
            done("locked")
            following = _next_number(connection)
            create_table(connection, following)
            done("created")
            # Waits for every transaction that has inserted, and keeps others waiting until the commit.
            connection.execute(text(f"LOCK TABLE {table_name(number)} IN SHARE ROW EXCLUSIVE MODE"))
            done("barrier")
            now = server_time(connection)
            connection.execute(update(TABLE).where(_T.id == number).values(sealed_at=now))
            done("sealed")
            row = {"id": following, "consumer": consumer, "legacy": False, "opened_at": now}
            connection.execute(insert(TABLE).values(**row))
            done("opened")
    except DBAPIError as error:
        if is_lock_timeout(error):
            return None
        raise
    return True


def may_rotate(connection: Connection) -> bool:
    """Return whether this account may create the tables of generations, and drop those that there are."""
    may = text(
        "SELECT has_schema_privilege(current_schema(), 'CREATE') AND NOT EXISTS (SELECT 1 FROM pg_class WHERE relkind = 'r'"
        " AND relname ~ '^oncemq_(generations|processed_[0-9]+)$' AND pg_table_is_visible(oid)"
        " AND NOT pg_has_role(relowner, 'USAGE'))"
    )
    return bool(connection.execute(may).scalar_one())


def retire(engine: Engine, consumer: str, keep: timedelta) -> int:
    """Stop looking up generations of which every record is older than `keep`; returns how many.

    By the database's clock, from the moment of sealing: no record of a generation is younger.
    """
    expired = server_moment(engine.dialect, keep)
    with engine.begin() as connection:
        old = update(TABLE).where(
            _T.consumer == consumer,
            _T.sealed_at.is_not(None),
            _T.retired_at.is_(None),
            _T.sealed_at <= expired,
        )
        return connection.execute(old.values(retired_at=server_time(connection))).rowcount


def drop_retired(engine: Engine, consumer: str, *, after: timedelta = DROP_AFTER) -> list[str]:
    """Drop the tables that were retired long enough ago; returns their names.

    One that is in use for longer than a moment is left for the next time. Rows of the old table are left to the purge.
    """
    dropped = []
    with engine.connect() as connection:
        waited = server_moment(engine.dialect, after)
        old = select(_T.id, _T.legacy).where(_T.consumer == consumer, _T.retired_at <= waited).order_by(_T.id)
        found = [tuple(row) for row in connection.execute(old)]
    for number, legacy in found:
        if _drop(engine, number, legacy=legacy) and not legacy:
            dropped.append(table_name(number))
    return dropped


def drop_all(engine: Engine, consumer: str | None = None) -> list[str]:
    """Drop all generations of a consumer, or of all, with their records; returns the names of the tables.

    The old table refuses the consumer's records no longer. For a ledger that is dropped, or a consumer that is gone.
    """
    with changing_schema(engine) as connection:
        if not inspect(connection).has_table(TABLE.name):
            return []
        mine = select(_T.id, _T.consumer, _T.legacy)
        mine = mine if consumer is None else mine.where(_T.consumer == consumer)
        found = [tuple(row) for row in connection.execute(mine.order_by(_T.id))]
        names = [table_name(number) for number, _, legacy in found if not legacy]
        for name in names:
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        for scope in sorted({scope for _, scope, _ in found}):
            _accept_in_old_table(connection, scope)
        gone = delete(TABLE)
        connection.execute(gone if consumer is None else gone.where(_T.consumer == consumer))
        if consumer is None:
            connection.execute(text("DROP FUNCTION IF EXISTS oncemq_refuse_flat_record() CASCADE"))
    return names


def adopt(engine: Engine, former: str, consumer: str) -> int:
    """Make the generations of a former name a consumer's own, sealed; returns how many.

    The open generations of both are locked as in a rotation, so that processes of either name read their list again.
    """
    with changing_schema(engine) as connection:
        theirs = select(_T.id, _T.legacy).where(_T.consumer == former)
        found = [tuple(row) for row in connection.execute(theirs.with_for_update())]
        if not found:
            return 0
        both = (_T.consumer == former) | (_T.consumer == consumer)
        open_ones = select(_T.id).where(both, _T.sealed_at.is_(None)).order_by(_T.id).with_for_update()
        following = _next_number(connection)
        create_table(connection, following)
        for number in connection.execute(open_ones).scalars().all():
            connection.execute(text(f"LOCK TABLE {table_name(number)} IN SHARE ROW EXCLUSIVE MODE"))
        now = server_time(connection)
        connection.execute(update(TABLE).where(both, _T.sealed_at.is_(None)).values(sealed_at=now))
        # Rows of the old table are renamed by themselves; one row of the list says that it is looked up.
        connection.execute(delete(TABLE).where(_T.consumer == former, _T.legacy))
        connection.execute(update(TABLE).where(_T.consumer == former).values(consumer=consumer))
        row = {"id": following, "consumer": consumer, "legacy": False, "opened_at": now}
        connection.execute(insert(TABLE).values(**row))
    return len(found)


def not_compact(engine: Engine, consumer: str) -> list[str]:
    """Return the tables of sealed generations that were not made compact, or have no index of their keys, yet."""
    sealed = select(_T.id).where(
        _T.consumer == consumer, _T.sealed_at.is_not(None), _T.retired_at.is_(None), ~_T.legacy
    )
    with engine.connect() as connection:
        names = [table_name(number) for number in connection.execute(sealed.order_by(_T.id)).scalars().all()]
        return [
            name
            for name in names
            if _comment(connection, name) != _COMPACT or not _has_keys(connection, name)
        ]


def compact(engine: Engine, consumer: str) -> list[str]:
    """Rebuild the index of each sealed generation once, clean its table, and index its keys; returns their names.

    Units go on meanwhile: no step takes a lock that conflicts with reading and inserting. Keys are indexed here, for
    operators, so that no insert pays for it; a key that is the identity is found by the identity.
    """
    names = not_compact(engine, consumer)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in names:
            # What an interrupted rebuild has left behind.
            connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}_id_ccnew"))
            connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}_key"))
            # Earlier versions made it compact without an index of keys.
            if _comment(connection, name) != _COMPACT:
                connection.execute(text(f"VACUUM (FREEZE, ANALYZE, TRUNCATE false) {name}"))
                connection.execute(text(f"REINDEX INDEX CONCURRENTLY {name}_id"))
            connection.execute(
                text(
                    f"CREATE INDEX CONCURRENTLY {name}_key ON {name} (key) WITH (fillfactor = 100) WHERE key IS NOT NULL"
                )
            )
            connection.execute(text(f"COMMENT ON TABLE {name} IS '{_COMPACT}'"))
    return names


def _accept_in_old_table(connection: Connection, consumer: str) -> None:
    found = text(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = CAST('oncemq_processed' AS regclass) AND NOT tgisinternal"
        " AND obj_description(oid, 'pg_trigger') = :consumer"
    )
    for name in connection.execute(found, {"consumer": consumer}).scalars().all():
        connection.execute(text(f"DROP TRIGGER IF EXISTS {name} ON oncemq_processed"))


_COMPACT: Final = "oncemq: sealed and compact"
"""Never another text: processes of an earlier version, in a rolling upgrade, would rebuild everything again."""


def _drop(engine: Engine, number: int, *, legacy: bool) -> bool:
    """Return whether it is gone; not while another transaction uses its table."""
    try:
        with engine.begin() as connection:
            _wait_at_most(connection, SHORTEST_WAIT)
            row = select(_T.id).where(_T.id == number).with_for_update()
            if connection.execute(row).first() is None:
                return False  # another process was first
            if not legacy:
                connection.execute(text(f"DROP TABLE IF EXISTS {table_name(number)}"))
            connection.execute(delete(TABLE).where(_T.id == number))
    except DBAPIError as error:
        if is_lock_timeout(error):
            return False
        raise
    return True


def _refuse_in_old_table(connection: Connection, consumer: str) -> None:
    """Let the database refuse further records of the consumer in `oncemq_processed`; waits for inserts that are running."""
    number = _next_number(connection)
    statement = text(
        "SELECT format('CREATE TRIGGER %I BEFORE INSERT ON oncemq_processed FOR EACH ROW WHEN (NEW.consumer = %L) "
        "EXECUTE FUNCTION oncemq_refuse_flat_record()', CAST(:name AS text), CAST(:consumer AS text))"
    )
    made = connection.execute(statement, {"name": f"oncemq_generations_{number}", "consumer": consumer})
    connection.exec_driver_sql(made.scalar_one().replace("%", "%%"))
    # By which the trigger of a consumer is found again.
    told = text(
        "SELECT format('COMMENT ON TRIGGER %I ON oncemq_processed IS %L', CAST(:name AS text), CAST(:consumer AS text))"
    )
    said = connection.execute(told, {"name": f"oncemq_generations_{number}", "consumer": consumer})
    connection.exec_driver_sql(said.scalar_one().replace("%", "%%"))


def _comment(connection: Connection, name: str) -> str | None:
    found: str | None = connection.execute(
        text("SELECT obj_description(CAST(:name AS regclass), 'pg_class')"), {"name": name}
    ).scalar()
    return found


def _has_keys(connection: Connection, name: str) -> bool:
    """Return whether the index of keys is there and complete; an interrupted build leaves an invalid one."""
    found = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
    return bool(connection.execute(found, {"name": f"{name}_key"}).scalar())


def _next_number(connection: Connection) -> int:
    following = text("SELECT nextval(pg_get_serial_sequence('oncemq_generations', 'id'))")
    return int(connection.execute(following).scalar_one())


def _wait_at_most(connection: Connection, wait: timedelta) -> None:
    connection.execute(text(f"SET LOCAL lock_timeout = '{wait // timedelta(milliseconds=1)}ms'"))
