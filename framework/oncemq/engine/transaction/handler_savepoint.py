"""Sets a handler's own savepoint when it first sends a statement: its failure undoes nobody else's work.

Most handlers only add objects, which are flushed for all of them together; they send nothing, and cost nothing here.
"""

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from oncemq.engine.base.error_verdicts import is_infrastructure
from oncemq.engine.transaction.connection_watch import ConnectionWatch


class HandlerSavepoint:
    """The savepoint of one call of a handler.

    Args:
        connection: on which nothing of the handler has been sent yet.
        watch: what is seen on it.
    """

    __slots__ = ("_before", "_connection", "_savepoint", "_watch")

    def __init__(self, connection: Connection, watch: ConnectionWatch) -> None:
        self._connection = connection
        self._watch = watch
        self._before = watch.savepoint
        watch.savepoint = self._savepoint = connection.begin_nested()

    @property
    def lost(self) -> bool:
        """Whether what the handler did is undone already: SQLAlchemy rolls back a session whose flush fails."""
        return not self._savepoint.is_active

    def release(self) -> None:
        """Keep what the handler did."""
        self._savepoint.commit()
        self._watch.savepoint = self._before

    def undo(self, error: BaseException) -> bool:
        """Take back all that the handler did, and nothing else; returns whether that was possible.

        Args:
            error: with which it failed; what ends the transaction for everybody is not undone alone.
        """
        doomed, savepoint = self._watch.doomed, self._savepoint
        if is_infrastructure(error):
            return False
        if doomed is not None and (not isinstance(doomed, DBAPIError) or is_infrastructure(doomed)):
            return False
        if self._connection.get_nested_transaction() not in (savepoint, self._before):
            # A handler's own one is still open; how the two lie is not worth finding out.
            return False
        try:
            if savepoint.is_active:
                savepoint.rollback()
        except Exception:
            return False
        self._watch.savepoint = self._before
        self._watch.forgive()
        return True
