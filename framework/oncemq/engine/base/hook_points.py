"""The named points of a message's way, at which tests kill the process; in production nothing listens.

What lies between them inside a strategy, a driver or an adapter is reached by wrapping that object in the test.
"""

POINTS = (
    "received",
    "reserved",
    "loaded",
    "handled",
    "saved",
    "before-commit",
    "committed",
    "before-ack",
    "ack-sent",
    "retry-published",
    "dead-letter-published",
    "draining",
    "shutdown",
)

OUTBOX_POINTS = ("outbox-published",)
"""Between a broker's confirmation of what a handler published and the deletion of its row."""

TRANSACTION_POINTS = (
    "message-held",
    "transaction-begun",
    "transaction-worked",
    "transaction-committed",
    "message-released",
)
"""The steps of a publisher's own transaction, from the broker's holding its message to the broker's letting it go."""


def nothing(name: str) -> None:
    """Ignore the point `name`."""
