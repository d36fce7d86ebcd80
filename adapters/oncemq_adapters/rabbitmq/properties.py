"""Between AMQP properties and our messages: what handlers see, and what travels on with a retry or dead letter."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pika import BasicProperties

from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage, make_message

PERSISTENT = 2
_HISTORY = frozenset(
    {
        *("x-death", "x-delivery-count", "x-acquired-count", "x-received-from", "x-stream-offset"),
        *("x-shovelled", "x-shovelled-by", "x-shovelled-timestamp"),
        # The broker would route a re-published message to these queues as well.
        *("CC", "BCC"),
    }
)
_HISTORY_PREFIXES = ("x-first-death-", "x-last-death-")
_MILLISECONDS_FROM = 10**11
"""Timestamps above are milliseconds, as many producers write against the specification."""


def read_message(topic: str, body: bytes, properties: Any, *, redelivered: bool) -> Message:
    """Return the message as handlers and the framework see it."""
    headers = readable_headers(properties)
    key = headers.get(names.KEY)
    return make_message(
        topic,
        body,
        message_id=properties.message_id or None,
        headers=headers,
        keys=(key,) if key else (),
        attempt=names.attempt_of(headers) if names.ATTEMPT in headers else 1,
        redelivered=redelivered,
        published_at=names.time_of(headers, names.PUBLISHED_AT) or moment_of(properties.timestamp),
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT),
    )


def readable_headers(properties: Any) -> dict[str, str]:
    """Return the application's headers as text, without routing history, with content type and encoding."""
    found = {
        name: value if type(value) is str else as_text(value)
        for name, value in (properties.headers or {}).items()
        if not is_history(name)
    }
    if properties.content_type:
        found[names.CONTENT_TYPE] = properties.content_type
    if properties.content_encoding:
        found[names.CONTENT_ENCODING] = properties.content_encoding
    return found


def as_text(value: Any) -> str:
    """Return a header's value as text: times in ISO form, tables and arrays as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat()
    if value is None or isinstance(value, bool | dict | list):
        return json.dumps(value, default=as_text, ensure_ascii=False)
    return str(value)


def is_history(name: str) -> bool:
    """Return whether a header is the broker's own record of a message's way."""
    return name in _HISTORY or name.startswith(_HISTORY_PREFIXES)


def moment_of(timestamp: Any) -> datetime | None:
    """Return the aware time that a timestamp property says; None for nonsense."""
    if isinstance(timestamp, datetime):
        return timestamp.replace(tzinfo=timestamp.tzinfo or UTC)
    if not isinstance(timestamp, int) or timestamp <= 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp / 1000 if timestamp > _MILLISECONDS_FROM else timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def for_next_hop(properties: Any, added: Mapping[str, str], username: str) -> Any:
    """Return the properties of a copy: everything as it was, `added` headers over it, no routing history.

    An expiration would let the copy vanish from a dead-letter queue, and a foreign user id is refused by the broker.
    """
    kept = {name: value for name, value in (properties.headers or {}).items() if not is_history(name)}
    return _copy(properties, {**kept, **added}, username)


def for_replay(properties: Any, username: str) -> Any:
    """Return the properties of a dead letter that starts anew: without our attempts and causes."""
    ours = {
        name: as_text(value)
        for name, value in (properties.headers or {}).items()
        if name.startswith(names.PREFIX)
    }
    kept = names.for_replay(ours)
    if names.KEY in ours:
        # A topic whose key comes from the broker's own key would otherwise refuse its replay.
        kept[names.KEY] = ours[names.KEY]
    others = {
        name: value
        for name, value in (properties.headers or {}).items()
        if not is_history(name) and not name.startswith(names.PREFIX)
    }
    return _copy(properties, {**others, **kept}, username)


def _copy(properties: Any, headers: dict[str, Any], username: str) -> Any:
    return BasicProperties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=headers,
        delivery_mode=PERSISTENT,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        message_id=properties.message_id,
        timestamp=properties.timestamp,
        type=properties.type,
        user_id=properties.user_id if properties.user_id == username else None,
        app_id=properties.app_id,
        cluster_id=properties.cluster_id,
    )


def for_burial(message: Message, added: Mapping[str, str], now: datetime, app: str) -> Any:
    """Return the properties of a message that was kept elsewhere; its headers have been text since it was read."""
    headers = {**message.headers, **added}
    if message.keys:
        headers.setdefault(names.KEY, message.keys[0])
    published = message.published_at or now
    return BasicProperties(
        content_type=headers.pop(names.CONTENT_TYPE, None),
        content_encoding=headers.pop(names.CONTENT_ENCODING, None),
        headers={names.PUBLISHED_AT: published.isoformat(), **headers},
        delivery_mode=PERSISTENT,
        message_id=message.message_id,
        timestamp=int(published.timestamp()),
        app_id=app,
    )


def for_publishing(message: OutgoingMessage, now: datetime, message_id: str, app: str) -> Any:
    """Return the properties of a new message."""
    headers: dict[str, Any] = {
        name: text
        for name, text in message.headers.items()
        if name not in (names.CONTENT_TYPE, names.CONTENT_ENCODING)
    }
    headers.setdefault(names.PUBLISHED_AT, now.isoformat())
    if message.key is not None:
        headers[names.KEY] = message.key
    return BasicProperties(
        content_type=message.headers.get(names.CONTENT_TYPE),
        content_encoding=message.headers.get(names.CONTENT_ENCODING),
        headers=headers,
        delivery_mode=PERSISTENT,
        message_id=message_id,
        timestamp=int(now.timestamp()),
        app_id=app,
    )
