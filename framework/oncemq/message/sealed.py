"""Holds a message whole inside the body of another one, for what no broker takes as it is."""

import json
from collections.abc import Mapping
from typing import Any

MAGIC = b"oncemq-sealed 1\n"
CONTENT_TYPE = "application/vnd.oncemq.sealed"


def seal(head: Mapping[str, Any], body: bytes) -> bytes:
    """Return the body that holds both.

    Args:
        head: what the adapter needs to make the original again; JSON.
        body: the original's.
    """
    # ASCII, so that it has no line feed but the one that ends it.
    return b"".join((MAGIC, json.dumps(head).encode(), b"\n", body))


def unseal(sealed: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return what `seal` was given; None if this is something else."""
    if not sealed.startswith(MAGIC):
        return None
    end = sealed.find(b"\n", len(MAGIC))
    try:
        head = json.loads(sealed[len(MAGIC) : end]) if end > 0 else None
    except (ValueError, RecursionError):
        return None
    return (head, sealed[end + 1 :]) if isinstance(head, dict) else None
