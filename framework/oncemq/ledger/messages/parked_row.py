"""Converts a message to a row of the table of parked messages, and back."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from oncemq.message.envelope import Message


@dataclass(frozen=True, slots=True)
class Parked:
    """One parked message.

    Args:
        id: the row's; 0 before it is stored.
        key: the business key.
        identity: the canonical identity.
        number: its position in its key's order, if it has one.
        held: it waits for the key's earlier messages, or is the first of them and is retried.
        message: as the broker delivered it.
        reason: why it is parked.
        parked_at: since when.
        due_at: when any process may take it; None = when it is released.
    """

    id: int
    key: str
    identity: str
    number: int | None
    held: bool
    message: Message
    reason: str
    parked_at: datetime
    due_at: datetime | None


def values_of(consumer: str, row: Parked) -> dict[str, Any]:
    """Return the columns of a new row."""
    message = row.message
    return {
        "consumer": consumer,
        "key": row.key,
        "identity": row.identity,
        "number": row.number,
        "held": row.held,
        "topic": message.topic,
        "attempt": message.attempt,
        "envelope": packed(message),
        "body": message.body,
        "published_at": message.published_at,
        "first_failed_at": message.first_failed_at,
        "parked_at": row.parked_at,
        "due_at": row.due_at,
        "reason": row.reason,
    }


def packed(message: Message, more: Mapping[str, str] | None = None) -> str:
    """Return the parts of a message without a column of their own, with `more` headers."""
    raw = [] if message.raw is None else [b64encode(message.raw).decode()]
    # ASCII only, so lone surrogates and NUL are harmless.
    return json.dumps([message.message_id, {**message.headers, **(more or {})}, message.keys, *raw])


def unstorable(message: Message) -> str | None:
    """Return why a message cannot be stored, for example after an adapter's mistake; None if it can."""
    try:
        packed(message)
    except (TypeError, ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def headers_of(envelope: str) -> dict[str, str]:
    """Return the headers in what `packed` has made."""
    headers: dict[str, str] = json.loads(envelope)[1]
    return headers


def unpacked(row: Any, body: bytes) -> Message:
    """Return the message of a row that has the columns of a message, and of its body."""
    message_id, headers, keys, *raw = json.loads(row.envelope)
    return Message(
        topic=row.topic,
        body=bytes(body),
        message_id=message_id,
        headers=headers,
        keys=tuple(keys),
        attempt=row.attempt,
        published_at=row.published_at,
        first_failed_at=row.first_failed_at,
        raw=b64decode(raw[0]) if raw else None,
    )


def parked_of(row: Any) -> Parked:
    """Return the parked message in a row of all columns."""
    message = unpacked(row, row.body)
    return Parked(
        row.id, row.key, row.identity, row.number, row.held, message, row.reason, row.parked_at, row.due_at
    )
