"""Sets a handler's own savepoint when it first sends a statement: its failure rolls back only its own work.

Most handlers only add objects, which are flushed for all of them together; they send nothing, and cost nothing here.
"""

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from oncemq.engine.base.error_verdicts import is_infrastructure
from oncemq.engine.transaction.connection_watch import ConnectionWatch


class HandlerSavepoint:
    """Savepoint of one handler call.

    Args:
        connection: a connection on which the handler has sent nothing yet.
        watch: the observations on it.
    """

    __slots__ = ("_before", "_connection", "_savepoint", "_watch")

    def __init__(self, connection: Connection, watch: ConnectionWatch) -> None:
        self._connection = connection
        self._watch = watch
        self._before = watch.savepoint
        watch.savepoint = self._savepoint = connection.begin_nested()

    @property
    def lost(self) -> bool:
        """Whether what the handler did is already rolled back: SQLAlchemy rolls back a session whose flush fails."""
        return not self._savepoint.is_active

    def release(self) -> None:
        """Keep the handler's work."""
        self._savepoint.commit()
        self._watch.savepoint = self._before

    def undo(self, error: BaseException) -> bool:
        """Roll back all of the handler's work, and nothing else; returns whether that was possible.

        Args:
            error: the handler's error; an error that ended the whole transaction cannot be undone alone.
        """
        doomed, savepoint = self._watch.doomed, self._savepoint
        if is_infrastructure(error):
            return False
        if doomed is not None and (not isinstance(doomed, DBAPIError) or is_infrastructure(doomed)):
            return False
        if self._connection.get_nested_transaction() not in (savepoint, self._before):
            # A savepoint of the handler's is still open; their nesting is not examined.
            return False
        try:
            if savepoint.is_active:
                savepoint.rollback()
        except Exception:
            return False
        self._watch.savepoint = self._before
        self._watch.forgive()
        return True
