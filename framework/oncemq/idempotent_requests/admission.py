"""Admits an HTTP request: passed, refused, answered from the ledger, or run."""

from contextlib import AbstractContextManager
from hashlib import sha256

from oncemq.common.spans import Note, inner_span
from oncemq.errors import AnswerNotKept, HandlerFault, InvalidKey, OnceMQError, RequestKeyInvalid
from oncemq.idempotent_requests.answer import Abandoned, Answer, Recovery
from oncemq.idempotent_requests.attempt import DatabaseTry, ExternalTry, Try
from oncemq.idempotent_requests.http import (
    Request,
    digest_of,
    fingerprint_of,
    identity_of,
    key_of,
    plain_fingerprint_of,
)
from oncemq.idempotent_requests.ledger import RequestLedger
from oncemq.idempotent_requests.problems import MISSING, REFUSALS, TOO_LARGE, problem, refusal
from oncemq.idempotent_requests.rules import Rules
from oncemq.ledger.records.requests import State
from oncemq.message.canonical import digest

REPLAYED = ("Idempotency-Replayed", "true")
"""Header that marks a stored answer."""


OUTCOME = "oncemq.outcome"
"""Attribute of a request's span: `applied`, `duplicate`, `refused` or `failed`."""
REFUSED = "refused"


def request_span(key: str) -> AbstractContextManager[Note]:
    """Make a span for a protected request, inside of the server's."""
    digits = sha256(key.encode(errors="replace")).hexdigest()[:16]
    return inner_span("idempotent request", {OUTCOME: "failed", "oncemq.key_hash": digits})


def outcome_of(answer: Answer) -> str:
    """Return how a request ended that got this answer instead of its handler's."""
    return "duplicate" if REPLAYED in answer.headers else REFUSED


def outcome_after(answer: Answer, instead: Answer | None) -> str:
    """Return how a request ended whose handler gave this answer, or was given another one instead."""
    if instead is not None:
        return outcome_of(instead)
    return "applied" if answer.storable() else "failed"


class Admission:
    """Decides about requests, independent of their transport."""

    def __init__(self, ledger: RequestLedger, rules: Rules) -> None:
        self.ledger, self.rules = ledger, rules

    def look(self, head: Request) -> Answer | str | None:
        """Return the key of a request that must run once, a refusal, or None: let it through."""
        if not self.rules.covers(head):
            return None
        try:
            key = key_of(head)
        except RequestKeyInvalid as error:
            return refusal(error, self.rules)
        if key is not None or not self.rules.requires_key(head):
            return key
        detail = "send an Idempotency-Key header: a text in quotes, new for each new request, the same when you repeat one"
        return problem(MISSING, detail, self.rules)

    def too_large(self) -> Answer:
        """Return the refusal of a body longer than the rules allow."""
        most = self.rules.max_request
        return problem(TOO_LARGE, f"a protected request has at most {most} bytes", self.rules)

    def admit(self, request: Request, key: str) -> Answer | Try:
        """Return a try to open, the stored answer, or a refusal; may wait for the database."""
        try:
            identity = self._identity(request, key)
            found = self.ledger.admit(
                identity,
                self._fingerprint(request),
                self._state(),
                self._recovery(request),
                earlier=lambda: self._earlier(request),
            )
        except OnceMQError as error:
            if type(error) not in REFUSALS:
                raise
            return refusal(error, self.rules)
        if isinstance(found, Answer):
            return self._again(request, found)
        return ExternalTry(self.ledger, found) if self.rules.exposed else DatabaseTry(self.ledger, found)

    def opened(self, one: Try) -> Answer | None:
        """Open a try; returns the refusal if that fails."""
        try:
            one.open()
        except OnceMQError as error:
            if type(error) not in REFUSALS:
                raise
            return refusal(error, self.rules)
        return None

    def answered(self, one: Try, answer: Answer) -> Answer | None:
        """End a try; returns the answer to send instead of the handler's, if any.

        Raises:
            Exception: the handler's work could not be committed, because of its own error.
        """
        try:
            one.answered(answer)
        except OnceMQError as error:
            if type(error) not in REFUSALS:
                raise
            return refusal(error, self.rules)
        return None

    def _identity(self, request: Request, key: str) -> str:
        tenant = "" if self.rules.tenant is None else self.rules.tenant(request)
        if self.rules.tenant is not None and not (isinstance(tenant, str) and tenant):
            raise RequestKeyInvalid("the caller of this request is not known, so its key cannot be used")
        try:
            return identity_of([f"tenant {tenant}", f"{request.method} {request.path}", key])
        except InvalidKey as error:
            raise RequestKeyInvalid(str(error)) from None

    def _fingerprint(self, request: Request) -> str:
        content = self.rules.fingerprint(request)
        if self.rules.fingerprint is fingerprint_of and isinstance(content, str):
            return digest(content)
        return digest_of(content if isinstance(content, bytes) else content.encode(errors="surrogateescape"))

    def _earlier(self, request: Request) -> str:
        """Return the fingerprint of versions before JSON bodies were compared by value."""
        return digest_of(plain_fingerprint_of(request).encode(errors="surrogateescape"))

    def _state(self) -> State:
        return State.EXPOSED if self.rules.exposed else State.RUNNING

    def _recovery(self, request: Request) -> Recovery:
        abandoned = self.rules.abandoned
        if isinstance(abandoned, Abandoned):
            return abandoned
        return lambda: abandoned(request)

    def _again(self, request: Request, answer: Answer) -> Answer:
        if answer.body is None:
            text = "its answer was too large to keep: ask for the state of what it changed"
            return refusal(AnswerNotKept(text, answer.status), self.rules)
        stored = Answer(answer.status, (*answer.headers, REPLAYED), answer.body)
        if self.rules.on_copy is None:
            return stored
        given = self.rules.on_copy(request, stored)
        if not isinstance(given, Answer):
            raise HandlerFault(f"`on_copy` must return an Answer, not {type(given).__name__}")
        return given
