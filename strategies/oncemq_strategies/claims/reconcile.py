"""Reconciliation of abandoned claims: verifies each in the background or on an operator's command."""

from collections.abc import Iterator
from uuid import uuid4

from oncemq.contracts.strategy import Reconciled, Scope
from oncemq.contracts.verification import Answer, Done, NotDone, Unknown
from oncemq.ledger.records.claims import Claim, State
from oncemq.message.stored import from_text
from oncemq_strategies.claims.base import ASK_AGAIN, Keeper
from oncemq_strategies.claims.ledger_claims import ClaimBook
from oncemq_strategies.claims.stored_messages import Finish, OfVerify
from oncemq_strategies.claims.verify import Asked, Asker, Unanswered
from oncemq_strategies.common.results import stored_or_none

_STEP = 20


class Reconciler:
    """Settles stuck claims of one consumer.

    No message runs here: a message is acknowledged only when its claim is done, so the broker still has every message
    whose claim is stuck, or its dead letter. A claim that proves undone is deleted, and the message runs when it is
    redelivered.

    Args:
        scope: of the consumer.
        book: the claims.
        keeper: renews them while they are verified.
        asker: calls `verify`.
    """

    def __init__(self, scope: Scope, book: ClaimBook, keeper: Keeper, asker: Asker) -> None:
        self._scope = scope
        self._book = book
        self._keeper = keeper
        self._asker = asker

    def step(self) -> bool:
        """Verify a few that are due; returns whether there may be more."""
        due = self._book.stuck(after="", limit=_STEP, everything=False)
        for claim in due:
            self._settle(claim, None)
        return len(due) == _STEP

    def all(self, identity: str | None, answer: Answer | None) -> Iterator[Reconciled]:
        """Yield the result for each stuck claim, or for the claim of `identity`.

        Args:
            identity: None = all.
            answer: given by an operator; None asks `verify`.
        """
        if identity is not None:
            claim = self._book.find(identity)
            if claim is not None and claim.state is not State.DONE:
                yield self._settle(claim, answer)
            return
        last = ""
        while found := self._book.stuck(after=last, limit=_STEP, everything=True):
            for claim in found:
                yield self._settle(claim, answer)
            last = found[-1].identity

    def _settle(self, claim: Claim, answer: Answer | None) -> Reconciled:
        owner = uuid4().hex
        self._keeper.hold(owner)
        try:
            if self._book.is_live(claim) or not self._book.take_over(claim, owner):
                return Reconciled(claim.key, claim.identity, "busy", "another process is at work on it")
            return self._write(claim, owner, Asked(answer) if answer is not None else self._ask(claim))
        finally:
            self._keeper.let_go(owner)

    def _ask(self, claim: Claim) -> Asked:
        if claim.envelope is None:
            return Asked(Unknown("its message is not in the ledger"))
        return self._asker.ask(from_text(claim.envelope))

    def _write(self, claim: Claim, owner: str, asked: Asked) -> Reconciled:
        identity, answer = claim.identity, asked.answer
        if isinstance(answer, Done):
            messages = OfVerify(self._scope, asked.published) if asked.published else None
            result = stored_or_none(answer.result)
            self._book.finish_all([Finish(identity, owner, result, claim.fingerprint, messages)])
            return Reconciled(claim.key, identity, "done", "")
        if isinstance(answer, NotDone):
            self._book.drop_verified(identity, owner)
            return Reconciled(claim.key, identity, "not done", "its message runs when it comes again")
        if isinstance(answer, Unanswered):
            reason = f"{type(answer.error).__name__}: {answer.error}"
            self._book.doubt(identity, owner, reason, ask_in=ASK_AGAIN)
            return Reconciled(claim.key, identity, "unanswered", reason)
        reason = answer.reason or claim.reason or ""
        self._book.doubt(identity, owner, reason, ask_in=ASK_AGAIN)
        return Reconciled(claim.key, identity, "unknown", reason)
