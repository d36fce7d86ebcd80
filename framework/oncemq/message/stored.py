"""Converts an envelope to text for tables, without loss of any bytes or headers."""

import json
from base64 import b64decode, b64encode
from dataclasses import fields
from datetime import datetime
from typing import Any

from oncemq.message.envelope import Envelope


def to_text(envelope: Envelope) -> str:
    """Return the envelope as JSON in ASCII."""
    found: dict[str, Any] = {field.name: getattr(envelope, field.name) for field in fields(Envelope)}
    found["headers"] = dict(envelope.headers)
    found["body"] = b64encode(envelope.body).decode()
    if envelope.published_at is not None:
        found["published_at"] = envelope.published_at.isoformat()
    return json.dumps(found)


def from_text(text: str) -> Envelope:
    """Return the envelope from the text of `to_text`."""
    found = json.loads(text)
    found["body"] = b64decode(found["body"])
    if found["published_at"] is not None:
        found["published_at"] = datetime.fromisoformat(found["published_at"])
    return Envelope(**found)
