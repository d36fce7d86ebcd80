"""Seals a whole message inside the body of another one, if no broker accepts it as it is."""

import json
from collections.abc import Mapping
from typing import Any

MAGIC = b"oncemq-sealed 1\n"
CONTENT_TYPE = "application/vnd.oncemq.sealed"


def seal(head: Mapping[str, Any], body: bytes) -> bytes:
    """Return a body that contains both.

    Args:
        head: what the adapter needs to restore the original; JSON.
        body: the original's.
    """
    # ASCII, so its only line feed is the final one.
    return b"".join((MAGIC, json.dumps(head).encode(), b"\n", body))


def unseal(sealed: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return the arguments that `seal` was given; None for another body."""
    if not sealed.startswith(MAGIC):
        return None
    end = sealed.find(b"\n", len(MAGIC))
    try:
        head = json.loads(sealed[len(MAGIC) : end]) if end > 0 else None
    except (ValueError, RecursionError):
        return None
    return (head, sealed[end + 1 :]) if isinstance(head, dict) else None
