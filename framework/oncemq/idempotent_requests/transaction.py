"""The transaction that a handler is lent: its effect and the stored answer commit together, or neither does."""

from typing import Any

from sqlalchemy import Connection, event

from oncemq.engine.transaction.session_loan import SessionLoan
from oncemq.errors import RequestInProgress
from oncemq.idempotent_requests.answer import Answer
from oncemq.idempotent_requests.handler_session import on_event_loop, refuse_on_event_loop
from oncemq.idempotent_requests.ledger import Claim, RequestLedger


class LentTransaction(SessionLoan):
    """One transaction for one try of a request; ended by `commit` or `roll_back`, from any thread."""

    def __init__(self, ledger: RequestLedger, claim: Claim) -> None:
        self._ledger, self._claim = ledger, claim
        super().__init__(ledger.engine)
        if not on_event_loop():
            # Whoever opened this in a thread wants the loop to go on; a framework may hand the session to it all the same.
            event.listen(self.connection, "before_cursor_execute", _refuse_on_event_loop)

    def commit(self, answer: Answer) -> None:
        """Store the answer and commit; ends the transaction, also when it raises.

        Raises:
            RequestInProgress: the lease was over and somebody else has taken the request; all is rolled back.
            HandlerFault: the handler ended the transaction, or hid an error of the database.
            Exception: what the flush or the commit failed with.
        """

        def store(connection: Connection) -> None:
            if not self._ledger.finish(connection, self._claim, answer):
                raise RequestInProgress("this try took longer than its lease, and another has taken over")

        self.finish(store)


def _refuse_on_event_loop(*_: Any) -> None:
    refuse_on_event_loop()
