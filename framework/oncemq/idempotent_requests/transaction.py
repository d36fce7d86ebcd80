"""Transaction of a handler: its effect and the stored answer commit together, or neither does."""

from typing import Any

from sqlalchemy import Connection, event

from oncemq.engine.transaction.caller_transaction import CallerTransaction
from oncemq.errors import RequestInProgress
from oncemq.idempotent_requests.answer import Answer
from oncemq.idempotent_requests.handler_session import on_event_loop, refuse_on_event_loop
from oncemq.idempotent_requests.ledger import Claim, RequestLedger


class LentTransaction(CallerTransaction):
    """One transaction for one try of a request; ended by `commit` or `roll_back`, from any thread."""

    def __init__(self, ledger: RequestLedger, claim: Claim) -> None:
        self._ledger, self._claim = ledger, claim
        super().__init__(ledger.engine)
        if not on_event_loop():
            # Opened in a thread, so as not to block the loop; a framework may still pass the session to the loop.
            event.listen(self.connection, "before_cursor_execute", _refuse_on_event_loop)

    def commit(self, answer: Answer) -> None:
        """Store the answer and commit; ends the transaction, also when it raises.

        Raises:
            RequestInProgress: the lease was over and another owner has taken the request; all is rolled back.
            HandlerFault: the handler ended the transaction, or swallowed a database error.
            Exception: the error of the flush or the commit.
        """

        def store(connection: Connection) -> None:
            if not self._ledger.finish(connection, self._claim, answer):
                raise RequestInProgress("this try took longer than its lease, and another has taken over")

        self.finish(store)


def _refuse_on_event_loop(*_: Any) -> None:
    refuse_on_event_loop()
