"""Converts AMQP properties to our messages: what handlers see, and what travels on with a retry or dead letter."""

import json
from datetime import UTC, datetime
from typing import Any

from pika import BasicProperties

from oncemq.errors import Undecodable
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage, make_message
from oncemq_adapters.rabbitmq.messages.raw_properties import RawProperties, fault_of, raw_of
from oncemq_adapters.rabbitmq.metadata import EXCHANGE, ROUTING_KEY, source_of

PERSISTENT = 2
_HISTORY = frozenset(
    {
        *("x-death", "x-delivery-count", "x-acquired-count", "x-received-from", "x-stream-offset"),
        *("x-shovelled", "x-shovelled-by", "x-shovelled-timestamp"),
        # The broker would route a re-published message to these queues as well.
        *("CC", "BCC"),
    }
)
_HIDDEN_FROM_STRANGERS = _HISTORY | names.HISTORY | {names.DEAD_ID, names.DEAD_AT, EXCHANGE, ROUTING_KEY}
_HISTORY_PREFIXES = ("x-first-death-", "x-last-death-")
_MILLISECONDS_FROM = 10**11
"""Timestamps above are milliseconds, as many producers write against the specification."""


def read_message(
    topic: str,
    body: bytes,
    properties: Any,
    *,
    redelivered: bool,
    from_group: bool = True,
    metadata_source: Any = None,
) -> Message:
    """Return the message as handlers and the framework see it.

    Args:
        topic: the topic's name in the app.
        body: the bytes.
        properties: pika's, or ours.
        redelivered: the broker says that it has delivered this before.
        from_group: it comes from a place that only the group writes to; else what it says of tries before is not believed.
        metadata_source: for `RabbitMQMetadata`.
    """
    headers = readable_headers(properties, from_group=from_group)
    key = headers.get(names.KEY)
    return make_message(
        topic,
        body,
        message_id=_text(properties.message_id) or None,
        headers=headers,
        keys=(key,) if key else (),
        attempt=names.attempt_of(headers) if names.ATTEMPT in headers else 1,
        redelivered=redelivered,
        published_at=names.time_of(headers, names.PUBLISHED_AT) or moment_of(properties.timestamp),
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT),
        raw=raw_of(properties),
        metadata_source=metadata_source,
    )


def read_any(
    topic: str,
    body: bytes,
    properties: Any,
    *,
    redelivered: bool,
    from_group: bool = True,
    method: Any = None,
) -> tuple[Message, Undecodable | None]:
    """Return the message, and why it can never be applied if its properties cannot be read.

    `method` is what pika delivered it with; everything else is as for `read_message`.
    """
    fault = fault_of(properties)
    if fault is None:
        try:
            source = source_of(method, properties, from_group=from_group)
            message = read_message(
                topic,
                body,
                properties,
                redelivered=redelivered,
                from_group=from_group,
                metadata_source=source,
            )
        except Exception as error:
            fault = str(error) or type(error).__name__
            properties = RawProperties(raw_of(properties), fault)
        else:
            return message, None
    message = read_message(
        topic, body, properties, redelivered=redelivered, from_group=from_group, metadata_source=method
    )
    return message, Undecodable(f"the message's headers cannot be read: {fault}")


def readable_headers(properties: Any, *, from_group: bool = True) -> dict[str, str]:
    """Return the application's headers as text, without routing history, with content type and encoding."""
    hidden = _HISTORY if from_group else _HIDDEN_FROM_STRANGERS
    found = {
        name: value if type(value) is str else as_text(value)
        for name, value in (properties.headers or {}).items()
        if not (name in hidden or name.startswith(_HISTORY_PREFIXES))
    }
    if properties.content_type:
        found[names.CONTENT_TYPE] = _text(properties.content_type)
    if properties.content_encoding:
        found[names.CONTENT_ENCODING] = _text(properties.content_encoding)
    return found


def _text(value: Any) -> Any:
    """Return a short string as text; pika leaves bytes that are no UTF-8 as they are."""
    return value.decode(errors="backslashreplace") if type(value) is bytes else value


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
        return names.plausible(timestamp.replace(tzinfo=timestamp.tzinfo or UTC))
    if not isinstance(timestamp, int) or timestamp <= 0:
        return None
    try:
        seconds = timestamp / 1000 if timestamp > _MILLISECONDS_FROM else timestamp
        return names.plausible(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def _priority(text: str) -> int | None:
    """Return a priority of AMQP's, one byte; None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) < 256 else None


def for_publishing(message: OutgoingMessage, now: datetime, message_id: str, app: str) -> Any:
    """Return the properties of a new message."""
    headers: dict[str, Any] = {
        name: text
        for name, text in message.headers.items()
        if name not in (names.CONTENT_TYPE, names.CONTENT_ENCODING, names.PRIORITY)
    }
    headers.setdefault(names.PUBLISHED_AT, now.isoformat())
    if message.key is not None:
        headers[names.KEY] = message.key
    return BasicProperties(
        content_type=message.headers.get(names.CONTENT_TYPE),
        content_encoding=message.headers.get(names.CONTENT_ENCODING),
        headers=headers,
        delivery_mode=PERSISTENT,
        priority=_priority(message.headers.get(names.PRIORITY, "")),
        message_id=message_id,
        timestamp=int(now.timestamp()),
        app_id=app,
    )
