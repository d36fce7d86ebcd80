"""Named kill points on a message's way, where tests kill the process; in production nothing listens.

Points inside a strategy, a driver or an adapter are reached by wrapping that object in the test.
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
"""Between a broker's confirmation of a handler's published message and the deletion of its row."""

ON_DEAD_POINTS = ("on-dead-done",)
"""After a consumer's `on_dead` function has committed, and before the dead letter is sent."""

DELAYED_POINTS = ("delayed-released",)
"""After messages that are due have moved to the outbox, and before they are sent."""

TRANSACTION_POINTS = (
    "message-held",
    "transaction-begun",
    "transaction-worked",
    "transaction-committed",
    "message-released",
)
"""Steps of a publisher's own transaction, from the broker holding its message to the broker releasing it."""


def nothing(name: str) -> None:
    """Ignore the point `name`."""
