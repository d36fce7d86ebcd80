"""Whether a transaction may be committed: a swallowed error otherwise turns COMMIT into ROLLBACK silently."""

from typing import Any

from sqlalchemy import Connection, RootTransaction

from oncemq.run.session import UnitSession, Watch

_PSYCOPG_IN_TRANSACTION = 2


def obstacle(
    connection: Connection, transaction: RootTransaction, session: UnitSession, watch: Watch
) -> BaseException | str | None:
    """Return why this transaction must not be committed; None when it may."""
    if watch.doomed is not None:
        return watch.doomed
    if not transaction.is_active or not session.is_active:
        return "the transaction was ended by a handler"
    driver: Any = connection.connection.driver_connection
    info = getattr(driver, "info", None)
    status = getattr(info, "transaction_status", _PSYCOPG_IN_TRANSACTION)
    if status != _PSYCOPG_IN_TRANSACTION:
        return "the transaction is in error on the server"
    return None
