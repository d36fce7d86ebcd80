"""HTTP requests and calls that take effect once: middleware for WSGI and ASGI, and a decorator, on the ledger.

The wire is that of "The Idempotency-Key HTTP Header Field" (draft-ietf-httpapi-idempotency-key-header).
What is guaranteed depends on where the effect lives:

- `effects="database"`: the handler writes through the session that it receives, whose transaction also stores
  the answer. Effect and record commit together, so the effect happens once, whichever process dies.
- `effects="external"`: the request is recorded first and its answer afterwards. If the process dies in between, the
  effect may have happened: the next request with that key is refused, unless `abandoned` says how to find out.

Once means for `keep`: a copy that comes later runs again.
"""

from oncemq.idempotent_requests.answer import NOT_DONE, REFUSE, RUN_AGAIN, UNKNOWN, Answer
from oncemq.idempotent_requests.asgi import IdempotentASGI
from oncemq.idempotent_requests.calls import idempotent
from oncemq.idempotent_requests.handler_session import in_session, session
from oncemq.idempotent_requests.http import Request
from oncemq.idempotent_requests.ledger import RequestLedger
from oncemq.idempotent_requests.rules import Rules
from oncemq.idempotent_requests.wsgi import IdempotentWSGI

__all__ = [
    "NOT_DONE",
    "REFUSE",
    "RUN_AGAIN",
    "UNKNOWN",
    "Answer",
    "IdempotentASGI",
    "IdempotentWSGI",
    "Request",
    "RequestLedger",
    "Rules",
    "idempotent",
    "in_session",
    "session",
]
