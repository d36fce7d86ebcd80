"""Converts an envelope to text for tables, without loss of any bytes or headers; what only a live delivery has is left out."""

import json
from base64 import b64decode, b64encode
from dataclasses import fields
from datetime import datetime
from typing import Any

from oncemq.message.envelope import Envelope
from oncemq.message.headers import ReadOnlyHeaders

_STORED = tuple(field.name for field in fields(Envelope) if field.name != "metadata_source")


def to_text(envelope: Envelope) -> str:
    """Return the envelope as JSON in ASCII."""
    found: dict[str, Any] = {name: getattr(envelope, name) for name in _STORED}
    found["headers"] = dict(envelope.headers)
    found["body"] = b64encode(envelope.body).decode()
    if envelope.published_at is not None:
        found["published_at"] = envelope.published_at.isoformat()
    return json.dumps(found)


def from_text(text: str) -> Envelope:
    """Return the envelope from the text of `to_text`."""
    found = json.loads(text)
    found["body"] = b64decode(found["body"])
    found["headers"] = ReadOnlyHeaders(found["headers"])
    if found["published_at"] is not None:
        found["published_at"] = datetime.fromisoformat(found["published_at"])
    return Envelope(**found)
