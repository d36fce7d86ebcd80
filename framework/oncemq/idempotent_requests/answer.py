"""Answers of requests as they are stored and repeated, and the policies for a request without an answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from oncemq.ledger.records.requests import Record

NOT_STORED = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "content-length"),  # of this one transfer
        *("date", "server"),  # the server's own
        *("set-cookie", "www-authenticate"),  # secrets and challenges of another moment
    }
)
"""Headers of an answer that are not stored, in lower case."""
BODILESS = frozenset({204, 304})
"""Answers that have no body, and no length."""
MOMENTARY = frozenset({401, 403, 407, 408, 409, 423, 425, 429})
"""Answers about the caller or the moment, not about the request: it may be repeated under the same key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Args:
        status: the HTTP status, such as 201; None for a call that is not an HTTP request.
        headers: names and values.
        body: of the answer; None if it was too large to keep.
    """

    status: int | None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = b""

    def storable(self) -> bool:
        """Return whether it answers the request finally."""
        return self.status is None or (200 <= self.status < 500 and self.status not in MOMENTARY)


def stored_headers(answer: Answer) -> str:
    """Return the headers that matter, as JSON."""
    return json.dumps([[name, text] for name, text in answer.headers if name.lower() not in NOT_STORED])


def sent_headers(answer: Answer) -> list[tuple[str, str]]:
    """Return the headers of an answer that we send ourselves, with its body in one piece."""
    length = [] if answer.status in BODILESS else [("Content-Length", str(len(answer.body or b"")))]
    return [*answer.headers, *length]


def from_record(record: Record) -> Answer:
    """Return the stored answer."""
    headers = tuple((name, text) for name, text in json.loads(record.headers or "[]"))
    return Answer(record.status, headers, record.body)


class Abandoned(Enum):
    """Policies that need no verification."""

    REFUSE = "refuse"
    RUN_AGAIN = "run again"


class Finding(Enum):
    """Results of verifying the effect, besides an answer."""

    NOT_DONE = "not done"
    UNKNOWN = "unknown"


REFUSE: Final = Abandoned.REFUSE
"""Refuse every further try: an operator must look. The default."""
RUN_AGAIN: Final = Abandoned.RUN_AGAIN
"""Run it again: for repeatable effects. A first try that outlives its lease may then run beside the second."""
NOT_DONE: Final = Finding.NOT_DONE
"""`verify` found that nothing happened: the request runs now."""
UNKNOWN: Final = Finding.UNKNOWN
"""`verify` could not tell: the request is refused, and verified again next time."""

Verify = Callable[[], Answer | Literal[Finding.NOT_DONE, Finding.UNKNOWN]]
"""Finds out whether the effect has happened; an Answer is stored and returned from then on."""
Recovery = Abandoned | Verify
