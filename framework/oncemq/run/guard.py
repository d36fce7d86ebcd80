"""A handler's own savepoint, set when it first speaks to the database: its failure undoes nobody else's work.

What was pending before is flushed first, so behind the savepoint there is nothing but this handler's doing. Most handlers
only add objects, which are flushed for all of them together; they never speak, and cost nothing here. What a handler
changes in an object that another one has only added cannot be told apart from that one's doing; it has no way to find it.
"""

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import SessionTransaction

from oncemq.run.judge import is_infrastructure
from oncemq.run.session import UnitSession
from oncemq.run.watch import Watch
from oncemq.unit import Item


class Guard:
    """Watches over one call of a handler.

    Args:
        session: what the handler is lent.
        watch: what is seen on its connection.
    """

    __slots__ = ("_before", "_clean", "_deleted", "_new", "_savepoint", "_session", "_watch")

    def __init__(self, session: UnitSession, watch: Watch) -> None:
        self._session = session
        self._watch = watch
        self._new, self._deleted = session.counts()
        self._clean = not session.changed()
        self._before = watch.savepoint
        self._savepoint: SessionTransaction | None = None
        watch.first = self._begin

    def release(self, unflushed: list[Item]) -> None:
        """Keep what the handler did; flushes what it left pending, and raises what that raises.

        Args:
            unflushed: of whom something was pending when the handler began; nobody, once it has spoken.
        """
        self._watch.first = None
        savepoint = self._savepoint
        if savepoint is None or self._watch.doomed is not None or self._session.misuse() is not None:
            return
        savepoint.commit()
        self._forget(unflushed)

    def undo(self, error: BaseException, unflushed: list[Item]) -> bool:
        """Take back all that the handler did, and nothing else; returns whether that was possible.

        Args:
            error: with which it failed; what ends the transaction for everybody is not undone alone.
            unflushed: as for `release`.
        """
        self._watch.first = None
        doomed, savepoint = self._watch.doomed, self._savepoint
        if savepoint is None or is_infrastructure(error):
            return False
        if doomed is not None and (not isinstance(doomed, DBAPIError) or is_infrastructure(doomed)):
            return False
        if self._session.get_nested_transaction() is not savepoint:
            # A handler's own one is still open; how the two lie is not worth finding out.
            return False
        try:
            savepoint.rollback()
        except Exception:
            return False
        self._forget(unflushed)
        self._watch.forgive()
        return True

    def _begin(self) -> None:
        """Set the savepoint before the handler's first statement; not where its doing cannot be told from others'."""
        session = self._session
        if not self._clean or session.changed() or session.counts()[1] != self._deleted:
            return
        with session.without_new(self._new):
            # Flushes what was pending before.
            self._savepoint = session.savepoint()
        self._watch.crowded = False

    def _forget(self, unflushed: list[Item]) -> None:
        self._savepoint = None
        unflushed.clear()
        self._session.guarded_by(None, self._before)
