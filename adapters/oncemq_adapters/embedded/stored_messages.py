"""How a message's headers, key and id are stored: as one JSON text, so that any Unicode survives."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from oncemq.message import headers as names
from oncemq.message.envelope import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def pack(headers: Mapping[str, str], keys: tuple[str, ...], message_id: str | None) -> str:
    """Return headers, keys and id as text; ASCII only, so lone surrogates and NUL are harmless."""
    return json.dumps([dict(headers), keys, message_id], separators=(",", ":"))


def unpack(topic: str, text: str, body: bytes, published_at: int, *, redelivered: bool = False) -> Message:
    """Return the message that was stored."""
    headers, keys, message_id = json.loads(text)
    return Message(
        topic=topic,
        body=body,
        message_id=message_id,
        headers=headers,
        keys=tuple(keys),
        attempt=names.attempt_of(headers),
        redelivered=redelivered,
        published_at=names.time_of(headers, names.PUBLISHED_AT) or moment(published_at),
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT),
    )


def microseconds(when: datetime) -> int:
    """Return an aware time as it is stored."""
    return (when - _EPOCH) // _MICROSECOND


def moment(stored: int) -> datetime:
    """Return a stored time, aware."""
    return _EPOCH + timedelta(microseconds=stored)
