"""Sets the framework's own savepoints: one for a part of a unit, or one for a handler call that sends a statement.

Most handlers only add objects, which are flushed for all of them together; they send nothing, and need no savepoint.
"""

from sqlalchemy import Connection

from oncemq.engine.base.error_verdicts import is_infrastructure
from oncemq.engine.transaction.connection_watch import ConnectionWatch


class UnitSavepoint:
    """A savepoint that the watch does not mistake for a handler's; the innermost one is `watch.savepoint`.

    Args:
        connection: in its transaction, and in no savepoint of a handler's.
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
        """Whether everything since is already rolled back: SQLAlchemy rolls back a session whose flush fails."""
        return not self._savepoint.is_active

    def release(self) -> None:
        """Keep everything since."""
        self._savepoint.commit()
        self._watch.savepoint = self._before

    def undo(self) -> bool:
        """Roll back everything since, and the reason that doomed the run with it; returns whether that was possible."""
        doomed, savepoint = self._watch.doomed, self._savepoint
        if doomed is not None and is_infrastructure(doomed):
            # The server may have rolled back everything.
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
