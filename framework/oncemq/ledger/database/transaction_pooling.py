"""Recognizes a pooler in transaction mode before PostgreSQL, such as PgBouncer, and does without what it takes away.

There a connection of ours is another one of the server's in each transaction. So statements that the driver has prepared
are missing or exist already, and what a session sets belongs to other clients.
"""

import re
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, event

from oncemq.common.error_text import attribute
from oncemq.ledger.database.connect import LOCK_TIMEOUT_SECONDS, READ_ONLY, set_up_postgresql

_OF_THE_DRIVER = re.compile(r'prepared statement "_pg3_')
_UNSET = (
    "RESET lock_timeout; RESET tcp_keepalives_idle; RESET tcp_keepalives_interval; RESET tcp_keepalives_count"
)
"""What our own first connections have left on the server's, as far as it can be reached."""
_PREPARED_ELSEWHERE = frozenset({"26000", "42P05"})


def is_pooled(engine: Engine) -> bool:
    """Return whether two connections that are open at the same time have one process of the server between transactions."""
    if engine.dialect.name != "postgresql":
        return False
    options: dict[str, Any] = {READ_ONLY: True, "isolation_level": "AUTOCOMMIT"}
    with (
        engine.connect().execution_options(**options) as first,
        engine.connect().execution_options(**options) as second,
    ):
        return _server_process(first) == _server_process(second)


def _server_process(connection: Connection) -> int:
    process: int = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return process


def adapt(engine: Engine) -> None:
    """Prepare no statements, and set the limit of lock waits in each transaction instead of the session; may be called twice."""
    if adapted(engine):
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(_UNSET)
    event.remove(engine, "connect", set_up_postgresql)
    event.listen(engine, "connect", _prepare_nothing)
    event.listen(engine, "begin", _limit_lock_waits)
    engine.dispose()


def adapted(engine: Engine) -> bool:
    """Return whether `adapt` was called."""
    return event.contains(engine, "begin", _limit_lock_waits)


def _prepare_nothing(connection: Any, record: Any) -> None:  # noqa: ARG001 - the event's signature
    if hasattr(connection, "prepare_threshold"):
        connection.prepare_threshold = None


def _limit_lock_waits(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")


def drop_connection(context: ExceptionContext) -> None:
    """Treat a connection as lost whose driver knows other prepared statements than the server: no message is at fault."""
    error = context.original_exception
    if attribute(error, "sqlstate") in _PREPARED_ELSEWHERE and _OF_THE_DRIVER.search(str(error)):
        context.is_disconnect = True
