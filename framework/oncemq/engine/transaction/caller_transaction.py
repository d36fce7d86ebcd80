"""Provides a transaction to a caller: the caller may use its session, and only we commit it."""

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from sqlalchemy import Connection, Engine, RootTransaction, select

from oncemq.engine.transaction.connection_watch import ConnectionWatch, UnitConnection, watch_connection
from oncemq.engine.transaction.handler_session import UnitSession, obstacle
from oncemq.engine.transaction.transaction_guard import Proof, SavedSettings
from oncemq.errors import SessionOwned
from oncemq.ledger.database.connect import clean


class CallerTransaction:
    """One transaction, ended by `finish` or `roll_back`, from any thread.

    Args:
        engine: the database; `oncemq.engine.transaction.connection_watch.install` has been called with it.
        first: our own statements before everything else.

    Attributes:
        session: for the caller, with the same permissions as a consumer's handler.
        connection: the transaction's.
    """

    session: UnitSession

    def __init__(self, engine: Engine, first: Callable[[Connection], None] | None = None) -> None:
        self._watch = ConnectionWatch(isolated=True, any_thread=True)
        self.connection = UnitConnection(engine)
        try:
            self._transaction: RootTransaction = self.connection.begin()
            # A driver may begin with the first statement only; without one the transaction looks ended.
            self.connection.execute(select(1))
            self._saved = SavedSettings(self.connection)
            self._proof = Proof(self.connection, uuid4().hex)
            if first is not None:
                first(self.connection)
            self.session = UnitSession.over(self.connection, self._watch)
        except BaseException:
            self.connection.close()
            raise
        watch_connection(self.connection, self._watch)
        self._watch.handling = True

    @property
    def doomed(self) -> bool:
        """Whether the caller has made a commit impossible."""
        return self._watch.doomed is not None

    def finish(self, last: Callable[[Connection], None] | None = None) -> None:
        """Commit; ends the transaction, also when it raises.

        Args:
            last: our own statements after everything else.

        Raises:
            HandlerFault: the caller ended the transaction, or suppressed a database error.
            Exception: the error of the flush, `last` or the commit.
        """
        try:
            self.session.flush()
            self._watch.handling = False
            self._require_whole()
            if last is not None:
                if self._watch.settings:
                    self._saved.restore()
                last(self.connection)
            self._transaction.commit()
        finally:
            self.roll_back()

    def roll_back(self) -> None:
        """Roll back, unless it is already ended; never raises."""
        self._watch.handling = False
        self.connection.watch = None
        try:
            self.session.close()
            if self._watch.settings:
                clean(self.connection, thoroughly=self._watch.raw)
            self.connection.close()
        except Exception:
            with suppress(Exception):
                self.connection.invalidate()

    def _require_whole(self) -> None:
        misuse = self.session.misuse()
        reason = obstacle(self.connection, self._transaction, self._watch, self.session) or misuse
        if reason is None and not self._proof.holds():
            # With a statement after it the transaction looks like the one that began, but it is another one.
            reason = SessionOwned(
                "the transaction was ended past the session: only the framework may commit it or roll it back"
            )
        if reason is not None:
            raise reason
