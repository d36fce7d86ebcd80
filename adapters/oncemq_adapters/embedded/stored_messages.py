"""Stored messages: headers, key and id as one JSON text, and which messages are refused before they are written."""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from oncemq.errors import BrokerRefused, Unroutable
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq_adapters.embedded.settings import Settings
from oncemq_adapters.embedded.topics import Stored

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


def refusal(settings: Settings, topic: str, message: OutgoingMessage) -> BrokerRefused | None:
    """Return why this message cannot be published; None if it can."""
    if not topic.strip() or not topic.isprintable():
        return Unroutable(f"embedded broker {settings.place}: {topic!r} cannot be a topic's name")
    if len(message.body) > settings.max_body:
        return BrokerRefused(
            f"embedded broker {settings.place}: a body of {len(message.body)} bytes for topic {topic!r} is over "
            f"max_body ({settings.max_body} bytes)"
        )
    return None


def stored(message: OutgoingMessage, now: datetime) -> Stored:
    """Return the message as it is written; without a producer's id it gets one that is unique anywhere."""
    keys = () if message.key is None else (message.key,)
    # What only a group writes of tries before is not a producer's to say.
    headers = {name: text for name, text in message.headers.items() if name not in names.HISTORY}
    properties = pack(headers, keys, message.message_id or uuid.uuid4().hex)
    due_at = microseconds(now + message.delay) if message.delay else 0
    return Stored(properties, message.body, microseconds(now), due_at)
