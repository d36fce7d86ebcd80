"""The named points of a message's way, at which tests kill the process; in production nothing listens."""

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
)


def nothing(name: str) -> None:
    """Ignore the point `name`."""
