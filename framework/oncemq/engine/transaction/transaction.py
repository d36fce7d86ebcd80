"""Whether a transaction may be committed: a swallowed error otherwise turns COMMIT into ROLLBACK silently."""

from typing import Any

from sqlalchemy import Connection, RootTransaction
from sqlalchemy.orm import Session

from oncemq.engine.transaction.connection_watch import Watch
from oncemq.errors import SessionOwned

_PSYCOPG_IN_TRANSACTION = 2


def obstacle(
    connection: Connection, transaction: RootTransaction, watch: Watch, session: Session | None = None
) -> BaseException | None:
    """Return why this transaction must not be committed; None when it may."""
    if watch.doomed is not None:
        return watch.doomed
    ended = session is not None and not session.is_active
    if ended or connection.closed or connection.invalidated or not transaction.is_active:
        return SessionOwned("a handler ended the transaction that it shares with other messages")
    driver: Any = connection.connection.driver_connection
    info = getattr(driver, "info", None)
    status = getattr(info, "transaction_status", _PSYCOPG_IN_TRANSACTION)
    if status != _PSYCOPG_IN_TRANSACTION or getattr(driver, "in_transaction", True) is False:
        return SessionOwned("the transaction is ended or in error on the server: a handler hid that")
    return None
