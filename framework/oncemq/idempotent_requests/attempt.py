"""One try of a request, from the claim to its end: stored, rolled back, or left unknown."""

from typing import Protocol

from sqlalchemy import exc
from sqlalchemy.orm import Session

from oncemq.errors import InfrastructureError, RequestInProgress
from oncemq.idempotent_requests.answer import Answer
from oncemq.idempotent_requests.housekeeping import LOG, best_effort
from oncemq.idempotent_requests.ledger import Claim, RequestLedger
from oncemq.idempotent_requests.transaction import LentTransaction
from oncemq.retry.classify import Fault, classify


class Try(Protocol):
    """One try; `answered` or `failed` ends it."""

    session: Session | None

    def open(self) -> None:
        """Begin; a failure here means that nothing has been done."""
        ...

    def answered(self, answer: Answer) -> None:
        """Record the handler's whole answer, which is sent only when this has returned.

        Raises:
            RequestInProgress: nothing has been done by this try: another try has taken over.
            InfrastructureError: nothing has been done, or it is unknown; the caller retries.
        """
        ...

    def failed(self) -> None:
        """Record that there will be no answer; never raises."""
        ...

    def undone(self) -> None:
        """Record that the handler did nothing, or was never called: the request may be repeated; never raises."""
        ...


class DatabaseTry:
    """The effect is in the transaction that stores the answer: without a stored answer there is no effect."""

    def __init__(self, ledger: RequestLedger, claim: Claim) -> None:
        self._ledger, self._claim = ledger, claim
        self._transaction: LentTransaction | None = None
        self.session: Session | None = None

    def open(self) -> None:
        """See Try."""
        try:
            self._transaction = LentTransaction(self._ledger, self._claim)
        except BaseException as error:
            self._ledger.release(self._claim)
            _raise_if_no_messages_fault(error)
            raise
        self.session = self._transaction.session

    def answered(self, answer: Answer) -> None:
        """See Try; an answer that does not settle the request rolls back the handler's work."""
        transaction = self._transaction
        if transaction is None:
            raise RuntimeError("a try must be opened before it is answered")
        # A handler that called rollback() and then answers with an error has done what it says.
        refused = transaction.doomed and (answer.status or 0) >= 400
        if not answer.storable() or refused:
            self.failed()
            return
        self.session = None
        try:
            transaction.commit(answer)
        except RequestInProgress:
            raise
        except BaseException as error:
            # If the commit's answer was lost, the release finds a finished request and changes nothing.
            self._ledger.release(self._claim)
            _raise_if_no_messages_fault(error)
            raise

    def failed(self) -> None:
        """See Try."""
        self.session = None
        if self._transaction is not None:
            self._transaction.roll_back()
        self._ledger.release(self._claim)

    def undone(self) -> None:
        """See Try."""
        self.failed()


class ExternalTry:
    """The effect is elsewhere: without a stored answer it may have happened, unless the handler says it did not."""

    session: Session | None = None

    def __init__(self, ledger: RequestLedger, claim: Claim) -> None:
        self._ledger, self._claim = ledger, claim

    def open(self) -> None:
        """See Try."""

    def answered(self, answer: Answer) -> None:
        """See Try; never raises, because the handler's answer is true whether it is stored or not."""
        if not answer.storable() and (answer.status or 500) < 500:
            self._ledger.release(self._claim)
        elif not answer.storable():
            self.failed()
        else:
            with best_effort("storing an answer"), self._ledger.engine.begin() as connection:
                if not self._ledger.finish(connection, self._claim, answer):
                    LOG.warning("request exceeded its lease and was executed again meanwhile")

    def failed(self) -> None:
        """See Try."""
        self._ledger.give_up(self._claim)

    def undone(self) -> None:
        """See Try."""
        self._ledger.release(self._claim)


def _raise_if_no_messages_fault(error: BaseException) -> None:
    if isinstance(error, exc.SQLAlchemyError) and classify(error) in {Fault.TRANSIENT, Fault.OFFLINE}:
        raise InfrastructureError(f"the database did not commit: {type(error).__name__}") from error
