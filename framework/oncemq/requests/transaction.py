"""The transaction that a handler is lent: its effect and the stored answer commit together, or neither does."""

from contextlib import suppress

from sqlalchemy import Connection, RootTransaction, select

from oncemq.errors import RequestInProgress
from oncemq.requests.answer import Answer
from oncemq.requests.ledger import Claim, RequestLedger
from oncemq.run.session import UnitSession, Watch, watch_connection
from oncemq.run.transaction import obstacle


class LentTransaction:
    """One transaction for one try of a request; ended by `commit` or `roll_back`, from any thread.

    Attributes:
        session: for the handler, who may do with it what a consumer's handler may.
    """

    session: UnitSession

    def __init__(self, ledger: RequestLedger, claim: Claim) -> None:
        self._ledger, self._claim = ledger, claim
        self._watch = Watch()
        self._connection: Connection = ledger.engine.connect()
        try:
            self._transaction: RootTransaction = self._connection.begin()
            # A driver may begin with the first statement only; without one the transaction looks ended.
            self._connection.execute(select(1))
            self.session = UnitSession.over(self._connection, self._watch)
        except BaseException:
            self._connection.close()
            raise
        self._unwatch = watch_connection(self._connection, self._watch)
        self._watch.enter(crowded=False)

    @property
    def doomed(self) -> bool:
        """Whether the handler has seen to it that this can no longer commit."""
        return self._watch.doomed is not None

    def commit(self, answer: Answer) -> None:
        """Store the answer and commit; ends the transaction, also when it raises.

        Raises:
            RequestInProgress: the lease was over and somebody else has taken the request; all is rolled back.
            HandlerFault: the handler ended the transaction, or hid an error of the database.
            Exception: what the flush or the commit failed with.
        """
        try:
            self.session.flush()
            self._watch.handling = False
            self._require_whole()
            if not self._ledger.finish(self._connection, self._claim, answer):
                raise RequestInProgress("this try took longer than its lease, and another has taken over")
            self._transaction.commit()
        finally:
            self.roll_back()

    def roll_back(self) -> None:
        """End without a trace, unless it is ended already; never raises."""
        self._watch.handling = False
        self._unwatch()
        try:
            self.session.close()
            self._connection.close()
        except Exception:
            with suppress(Exception):
                self._connection.invalidate()

    def _require_whole(self) -> None:
        misuse = self.session.misuse()
        reason = obstacle(self._connection, self._transaction, self.session, self._watch) or misuse
        if reason is not None:
            raise reason
