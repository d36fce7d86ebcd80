"""Tries the account's rights on the ledger's tables, in a transaction that is rolled back."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    Table,
    delete,
    exc,
    false,
    insert,
    literal,
    select,
    text,
    update,
)

from oncemq.errors import LedgerError
from oncemq.ledger.database.connect import place
from oncemq.ledger.sql.column_types import MYSQL_NAMES

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""Which the ledger uses on each of its tables, except on the one with its version, which it only reads."""

_DENIED: AbstractSet[str | int] = frozenset({"42501", 1142, 1143, 1044})
"""SQLSTATE of PostgreSQL; numbers of MariaDB and MySQL."""

_READ_ONLY: AbstractSet[str | int] = frozenset({"25006", 1290, 1792, 1836})

# A column with a default from a sequence needs a right on the sequence; an identity column does not.
_SEQUENCES = text(
    "SELECT quote_ident(n.nspname) || '.' || quote_ident(s.relname) FROM pg_depend d"
    " JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' JOIN pg_namespace n ON n.oid = s.relnamespace"
    " JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid"
    " WHERE d.classid = CAST('pg_class' AS regclass) AND d.refclassid = CAST('pg_class' AS regclass) AND d.deptype = 'a'"
    " AND a.attidentity = '' AND a.attrelid IN (SELECT to_regclass(t) FROM unnest(CAST(:tables AS text[])) t)"
    " AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE') ELSE false END"
)


def insist(engine: Engine, tables: Sequence[Table], only_read: Table) -> None:
    """Make sure that the account may do with the ledger's tables what the ledger does.

    Args:
        engine: the app's database.
        tables: those that exist and are used.
        only_read: the one of them that is only read.

    Raises:
        LedgerError: a right is missing, or the database is read-only; says what an administrator must do.
    """
    tries = [(table, right, _trial(table, right)) for table in tables for right in _used(table, only_read)]
    with engine.connect() as connection:
        try:
            for _, _, statement in tries:
                connection.execute(statement)
            missing: list[tuple[Table, str]] = []
        except exc.DBAPIError as error:
            connection.rollback()
            if _says(error, _READ_ONLY) or "readonly database" in str(error.orig):
                raise LedgerError(
                    f"{place(engine)} is read-only: give the primary's address, or an account that may write"
                ) from None
            if not is_denied(error):
                raise
            missing = list(_denied(connection, tries))
        connection.rollback()
        sequences = _sequences(connection, tables)
        if missing or sequences:
            raise LedgerError(_advice(connection, missing, sequences))


def is_denied(error: exc.DBAPIError) -> bool:
    """Return whether the account may not do what it tried."""
    return _says(error, _DENIED)


def _used(table: Table, only_read: Table) -> Sequence[str]:
    return RIGHTS[:1] if table.name == only_read.name else RIGHTS


def _trial(table: Table, right: str) -> Executable:
    """Return a statement that needs the right and touches no row."""
    columns = list(table.c)
    if right == "SELECT":
        return select(literal(1)).select_from(table).where(false())
    if right == "INSERT":
        return insert(table).from_select([column.name for column in columns], select(*columns).where(false()))
    if right == "UPDATE":
        # SQLAlchemy leaves a column's own name out as a value, but not an expression of it.
        last = columns[-1]
        return update(table).values({last: last}).where(false())
    return delete(table).where(false())


def _denied(
    connection: Connection, tries: Iterable[tuple[Table, str, Executable]]
) -> Iterator[tuple[Table, str]]:
    for table, right, statement in tries:
        try:
            with connection.begin_nested():
                connection.execute(statement)
        except exc.DBAPIError as error:
            if not is_denied(error):
                raise
            yield table, right


def _says(error: exc.DBAPIError, codes: AbstractSet[str | int]) -> bool:
    """Return whether the driver's error has one of the codes: a SQLSTATE, or a number of MariaDB or MySQL."""
    original = error.orig
    number = next(iter(getattr(original, "args", ())), None)
    return getattr(original, "sqlstate", None) in codes or (isinstance(number, int) and number in codes)


def _sequences(connection: Connection, tables: Sequence[Table]) -> list[str]:
    if connection.dialect.name != "postgresql":
        return []
    found = connection.execute(_SEQUENCES, {"tables": [table.name for table in tables]})
    return sorted(row[0] for row in found)


def _advice(connection: Connection, missing: Sequence[tuple[Table, str]], sequences: Sequence[str]) -> str:
    engine = connection.engine
    account, database = _account(connection), engine.url.database
    rights: dict[str, list[str]] = {}
    for table, right in missing:
        rights.setdefault(table.name, []).append(right)
    lacks = [f"{', '.join(names)} on {table}" for table, names in rights.items()]
    lacks += [f"USAGE on sequence {name}" for name in sequences]
    by_rights: dict[str, list[str]] = {}
    for name, granted_rights in rights.items():
        by_rights.setdefault(", ".join(granted_rights), []).append(name)
    if engine.dialect.name in MYSQL_NAMES:
        grants = [
            f"GRANT {names} ON `{database}`.{table} TO {account};"
            for names, granted in by_rights.items()
            for table in granted
        ]
    else:
        grants = [
            f"GRANT {names} ON {', '.join(granted)} TO {account};" for names, granted in by_rights.items()
        ]
        grants += [f"GRANT USAGE ON SEQUENCE {', '.join(sequences)} TO {account};"] if sequences else []
    return (
        f"{place(engine)}: the account {account} lacks {'; '.join(lacks)}. "
        f"Have an administrator run: {' '.join(grants)}"
    )


def _account(connection: Connection) -> str:
    if connection.dialect.name in MYSQL_NAMES:
        user, _, host = str(connection.exec_driver_sql("SELECT CURRENT_USER()").scalar()).rpartition("@")
        return f"'{user}'@'{host}'"
    return '"' + str(connection.exec_driver_sql("SELECT CURRENT_USER").scalar()).replace('"', '""') + '"'
