"""Probes the database: clear errors at start, warnings for risky settings."""

from collections.abc import Iterator

from sqlalchemy import Connection, Engine, exc, inspect

from oncemq.errors import InfrastructureError, LedgerError, MissingExtra
from oncemq.ledger.database import galera, transaction_pooling
from oncemq.ledger.database.connect import READ_ONLY, place
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.ledger.sql.tables import PREFIX
from oncemq.retry.classify import Fault, classify

OLDEST = {"postgresql": (11,), "sqlite": (3, 35), "mysql": (8, 0, 19), "mariadb": (10, 5)}
"""Older versions lack RETURNING, or row aliases on MySQL."""


_POOLED = (
    "PostgreSQL is behind a pooler in transaction mode, such as PgBouncer: statements are not prepared, and what a handler "
    "sets with SET stays on a connection that other clients get; pool_mode = session has neither consequence"
)


def prove(engine: Engine) -> None:
    """Connect once, and adapt the engine to a pooler in transaction mode.

    Raises:
        InfrastructureError: no server answers at this address; a retry may help.
        LedgerError: it answers and refuses, or is too old; an operator must act.
        MissingExtra: the driver needs another package for this user's authentication method.
    """
    try:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            connection.exec_driver_sql("SELECT 1")
            _refuse_old(connection)
        if transaction_pooling.is_pooled(engine):
            transaction_pooling.adapt(engine)
    except exc.DBAPIError as error:
        raise explain(error, engine) from None
    except RuntimeError as error:
        # MySQL 8 requires it for passwords without TLS, and only if it has not cached the user.
        if "cryptography" not in str(error):
            raise
        text = (
            f"{place(engine)} asks for the password in a way for which the package 'cryptography' is needed"
        )
        raise MissingExtra(f"{text}: pip install 'oncemq[mysql]'") from None
    except OSError as error:
        text = f"a file that the URL of {place(engine)} names, such as ssl_ca, cannot be used"
        raise LedgerError(f"{text}: {error}") from None


def explain(error: exc.DBAPIError, engine: Engine) -> LedgerError | InfrastructureError:
    """Return the meaning of a failed connection and what to do, without secrets."""
    where, said = place(engine), _first_line(error)
    refusal = _refusal(where, said, engine.url.username)
    if refusal:
        return LedgerError(refusal)
    if "WSREP has not yet prepared node" in said:
        return InfrastructureError(
            f"{where} is a node that has lost the majority of its Galera cluster, or has not caught up with it: bring the other "
            f"nodes back, or give the address of one that has it ({said})"
        )
    if classify(error) is Fault.SETUP:
        return LedgerError(f"{where} refused the login: {said}")
    return InfrastructureError(
        f"{where} does not answer: is the server running, is the address right? ({said})"
    )


def _refusal(where: str, said: str, user: str | None) -> str:
    """Return what an operator must do about the server's error; empty if waiting may help."""
    advice = (
        (
            ("password authentication failed", "Access denied", "no password supplied"),
            f"{where} refuses the user {user or '(none)'!r}: check `username` and `password` under `database` ({said})",
        ),
        (
            ("certificate", "SSL error"),
            f"TLS with {where} failed: {said}; check the host's name, sslrootcert (MySQL: ssl_ca) and the certificate's dates",
        ),
        (
            ("does not exist", "Unknown database"),
            f"{where} does not exist on that server: create it, or correct its name ({said})",
        ),
        (
            ("unable to open database file",),
            f"{where} cannot be opened: does its folder exist, and may we write there?",
        ),
        (("file is not a database",), f"{where} is not an SQLite database: give another file name"),
    )
    return next((text for words, text in advice if any(word in said for word in words)), "")


def startup_warnings(engine: Engine) -> list[str]:
    """Return the risks of this database's settings, one sentence each."""
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        if connection.dialect.name == "postgresql":
            pooled = [_POOLED] if transaction_pooling.adapted(engine) else []
            return [*pooled, *_postgresql(connection)]
        if connection.dialect.name in MYSQL_NAMES:
            return [*_mysql(connection), *galera.risks(connection)]
        return list(_sqlite(engine))


def _refuse_old(connection: Connection) -> None:
    name = "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name
    version = tuple(part for part in connection.dialect.server_version_info or () if isinstance(part, int))
    if name in OLDEST and version and version < OLDEST[name]:
        have, need = (".".join(map(str, numbers)) for numbers in (version, OLDEST[name]))
        raise LedgerError(f"{name} {have} is too old: OnceMQ needs {need} or newer")


def _postgresql(connection: Connection) -> Iterator[str]:
    for setting in ("synchronous_commit", "fsync", "full_page_writes"):
        value = connection.exec_driver_sql(f"SHOW {setting}").scalar()
        if value == "off":
            yield (
                f"PostgreSQL runs with {setting} = off: commits that were acknowledged can be lost in a crash, "
                "and their messages with them; set it to on"
            )
    if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar():
        yield "PostgreSQL is a read-only replica: give the primary's address"


def _mysql(connection: Connection) -> Iterator[str]:
    flush = connection.exec_driver_sql("SELECT @@innodb_flush_log_at_trx_commit").scalar()
    if flush != 1:
        yield (
            f"innodb_flush_log_at_trx_commit is {flush}: commits that were acknowledged can be lost in a crash, "
            "and their messages with them; set it to 1"
        )
    if connection.exec_driver_sql("SELECT @@read_only").scalar():
        yield "the server is read-only: give the primary's address"
    odd = [
        name
        for name in inspect(connection).get_table_names()
        if str(
            inspect(connection).get_table_options(name).get(f"{connection.dialect.name}_engine", "InnoDB")
        ).lower()
        in {"myisam", "aria", "memory", "csv", "archive"}
    ]
    for name in odd:
        kind = "of the ledger " if name.startswith(PREFIX) else ""
        yield (
            f"table {name} {kind}has a storage engine without transactions: what a handler writes there stays when "
            f"its unit is rolled back; ALTER TABLE {name} ENGINE=InnoDB"
        )


def _sqlite(engine: Engine) -> Iterator[str]:
    if engine.url.database in {None, "", ":memory:"}:
        yield "the database lives in memory: it is gone when this process ends, and no other process sees it"


def _first_line(error: exc.DBAPIError) -> str:
    """Return the server's message; never the statement or its parameters."""
    original = error.orig
    text = str(original.args[-1]) if original is not None and original.args else str(original or "")
    return " ".join(text.split())[:300]
