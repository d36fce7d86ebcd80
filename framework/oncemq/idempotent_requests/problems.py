"""Refusals as problem details (RFC 9457); the codes 400, 409 and 422 are the Idempotency-Key draft's, section 2.7."""

import json
import math
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from oncemq.errors import (
    AnswerNotKept,
    InfrastructureError,
    OnceMQError,
    OutcomeUnknown,
    RequestConflict,
    RequestInProgress,
    RequestKeyInvalid,
)
from oncemq.idempotent_requests.answer import Answer
from oncemq.idempotent_requests.rules import Rules

Title = tuple[int, str, str]
"""Status, problem type and title."""

MISSING: Title = (400, "key-missing", "Idempotency-Key is missing")
INVALID: Title = (400, "key-invalid", "Idempotency-Key cannot be used")
TOO_LARGE: Title = (413, "request-too-large", "The request is too large to be carried out once")
REFUSALS: dict[type[OnceMQError], Title] = {
    RequestKeyInvalid: INVALID,
    RequestConflict: (422, "key-reused", "Idempotency-Key is already used"),
    RequestInProgress: (409, "in-progress", "A request with this Idempotency-Key is being carried out"),
    OutcomeUnknown: (409, "outcome-unknown", "It is not known whether this request was carried out"),
    AnswerNotKept: (409, "answer-not-kept", "This request was carried out; its answer was not kept"),
    InfrastructureError: (503, "ledger-unavailable", "The request could not be carried out now"),
}
PROBLEM_TYPE = "application/problem+json"
_PREFIX = "urn:oncemq:idempotency:"


def problem(title: Title, detail: str, rules: Rules, **members: Any) -> Answer:
    """Return a refusal."""
    status, kind, text = title
    body = {"type": _PREFIX + kind, "title": text, "status": status, "detail": detail, **members}
    headers = [("Content-Type", PROBLEM_TYPE), ("Cache-Control", "no-store")]
    if rules.documentation:
        headers.append(("Link", f'<{rules.documentation}>; rel="describedby"; type="text/html"'))
    return Answer(status, tuple(headers), json.dumps(body).encode())


def refusal(error: OnceMQError, rules: Rules) -> Answer:
    """Return the problem for the caller from `error`, which is one of `REFUSALS`."""
    title = REFUSALS[type(error)]
    if isinstance(error, AnswerNotKept):
        return problem(title, str(error), rules, original_status=error.status)
    if isinstance(error, InfrastructureError):
        # The database's own error text is for operators only.
        detail = "nothing has been done: send the same request with the same key again"
        return _come_again(problem(title, detail, rules), rules.retry_after)
    answer = problem(title, str(error), rules)
    return _come_again(answer, rules.retry_after) if isinstance(error, RequestInProgress) else answer


def reason(status: int) -> str:
    """Return the reason phrase of a status line."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _come_again(answer: Answer, after: timedelta) -> Answer:
    header = ("Retry-After", str(math.ceil(after.total_seconds())))
    return Answer(answer.status, (*answer.headers, header), answer.body)
