"""An envelope as text, for tables: nothing is lost, whatever its bytes and headers are."""

import json
from base64 import b64decode, b64encode
from dataclasses import fields
from datetime import datetime
from typing import Any

from oncemq.message.envelope import Envelope


def to_text(envelope: Envelope) -> str:
    """Return the envelope as JSON in ASCII."""
    found: dict[str, Any] = {one.name: getattr(envelope, one.name) for one in fields(Envelope)}
    found["headers"] = dict(envelope.headers)
    found["body"] = b64encode(envelope.body).decode()
    if envelope.published_at is not None:
        found["published_at"] = envelope.published_at.isoformat()
    return json.dumps(found)


def from_text(text: str) -> Envelope:
    """Return the envelope that `to_text` was given."""
    found = json.loads(text)
    found["body"] = b64decode(found["body"])
    if found["published_at"] is not None:
        found["published_at"] = datetime.fromisoformat(found["published_at"])
    return Envelope(**found)
