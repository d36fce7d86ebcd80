"""Converts Kafka's records to our messages, and makes the copies that travel on with a retry or dead letter.

A copy keeps key, value and every header of the original as bytes, also those that are no text.
"""

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage, make_message

NOT_BEFORE = f"{names.PREFIX}not-before"
"""Milliseconds since 1970: when a retry is due."""
KAFKA_KEY = f"{names.PREFIX}kafka-key"
"""The original's key, in a dead letter: its own key is its id."""
NO_VALUE = f"{names.PREFIX}kafka-null"
"""The original had no value; a dead letter without one would be removed."""

_FORGEABLE = names.HISTORY | {names.DEAD_ID, names.DEAD_AT, NOT_BEFORE, KAFKA_KEY, NO_VALUE}
_HIDDEN = frozenset({NOT_BEFORE, KAFKA_KEY, NO_VALUE})

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """What is published.

    Args:
        topic: on the broker.
        key: decides the partition where none is given.
        value: None removes the key's records from a compacted topic.
        headers: in their order.
        partition: None = by the key.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None


class Original(NamedTuple):
    """A record's own parts."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def original_of(raw: Any) -> Original:
    """Return the parts of a received record."""
    return Original(raw.key(), raw.value(), list(raw.headers() or ()))


def read_message(topic: str, raw: Any, *, from_group: bool) -> Message:
    """Return the message as handlers and the framework see it.

    Args:
        topic: the topic's name in the app.
        raw: as received.
        from_group: it comes from a topic that only the group writes to; else what it says of tries before is not believed.
    """
    parts = original_of(raw)
    message_id = f"{raw.topic()}-{raw.partition()}-{raw.offset()}"
    return message_of(topic, parts, raw.timestamp()[1], message_id, from_group=from_group)


def message_of(topic: str, parts: Original, timestamp: int, message_id: str, *, from_group: bool) -> Message:
    """Return the message made of a record's parts; `message_id` counts where the producer gave none."""
    hidden = _HIDDEN if from_group else _FORGEABLE
    headers = {name: _text(value) for name, value in parts.headers if name not in hidden}
    key = _key_text(parts.key)
    return make_message(
        topic,
        parts.value or b"",
        message_id=headers.get(names.MESSAGE_ID) or message_id,
        headers=headers,
        keys=(key,) if key else (),
        attempt=names.attempt_of(headers) if names.ATTEMPT in headers else 1,
        redelivered=False,
        published_at=names.time_of(headers, names.PUBLISHED_AT) or moment_of(timestamp),
        first_failed_at=names.time_of(headers, names.FIRST_FAILED_AT),
        raw=_raw_of(parts),
    )


def due_of(raw: Any) -> float:
    """Return the seconds since 1970 at which a retry is due; 0 if it says nothing that can be read."""
    for name, value in raw.headers() or ():
        if name == NOT_BEFORE and value is not None and value.isdigit() and len(value) <= 15:
            return int(value) / 1000
    return 0.0


def new_record(topic: str, message: OutgoingMessage, now: datetime) -> Record:
    """Return the record of a new message."""
    headers = {names.PUBLISHED_AT: now.isoformat(), **message.headers}
    if message.message_id is not None:
        headers[names.MESSAGE_ID] = message.message_id
    key = None if message.key is None else message.key.encode()
    return Record(topic, key, message.body, [(name, text.encode()) for name, text in headers.items()])


def retry_record(
    topic: str, partition: int, message: Message, parts: Original, added: Mapping[str, str], due: datetime
) -> Record:
    """Return the copy that comes back to the group when it is due."""
    milliseconds = round(due.timestamp() * 1000)
    headers = _written(message, parts.headers, {**added, NOT_BEFORE: str(milliseconds)})
    return Record(topic, parts.key, parts.value, headers, partition)


def dead_record(
    topic: str, message: Message, parts: Original, added: Mapping[str, str], now: datetime
) -> Record:
    """Return the copy that becomes a dead letter."""
    dead_id = uuid.uuid4().hex
    cause = {
        **added,
        names.DEAD_ID: dead_id,
        names.DEAD_AT: now.isoformat(),
        names.ORIGIN_TOPIC: message.topic,
    }
    headers = _written(message, parts.headers, cause)
    if parts.key is not None:
        headers.append((KAFKA_KEY, parts.key))
    if parts.value is None:
        headers.append((NO_VALUE, b"1"))
    return Record(topic, dead_id.encode(), parts.value or b"", headers, 0)


def replayed_record(topic: str, parts: Original) -> Record:
    """Return a dead letter as it starts again: without our attempts and causes."""
    own = buried(parts)
    headers = [
        (name, value)
        for name, value in own.headers
        if not name.startswith(names.PREFIX) or name in names.KEPT_BY_REPLAY
    ]
    return Record(topic, own.key, own.value, headers, 0)


def buried(parts: Original) -> Original:
    """Return the parts of the original inside a dead letter."""
    found = dict(parts.headers)
    headers = [(name, value) for name, value in parts.headers if name not in _HIDDEN]
    return Original(found.get(KAFKA_KEY), None if NO_VALUE in found else parts.value, headers)


def parts_of(message: Message) -> Original:
    """Return the parts of a message that was kept outside of the broker."""
    if message.raw is not None:
        found = json.loads(message.raw)
        key, value = _bytes(found["key"]), None if found["null"] else message.body
        return Original(key, value, [(name, _bytes(text)) for name, text in found["headers"]])
    key = message.keys[0].encode() if message.keys else None
    return Original(key, message.body, [(name, text.encode()) for name, text in message.headers.items()])


def moment_of(milliseconds: int) -> datetime | None:
    """Return the aware time of a time stamp; None for nonsense."""
    try:
        return names.plausible(datetime.fromtimestamp(milliseconds / 1000, UTC)) if milliseconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def longest_step(delay: timedelta) -> int:
    """Return the partition of the retries for a delay: messages of similar delays wait together."""
    return sum(1 for step in STEPS[1:] if delay >= step)


STEPS = (
    timedelta(0),
    timedelta(seconds=2),
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=3),
    timedelta(days=1),
)
"""From which delay on a retry waits in the next partition."""


def _written(
    message: Message, headers: Iterable[tuple[str, bytes | None]], added: Mapping[str, str]
) -> Headers:
    more = dict(added)
    if message.published_at is not None:
        more.setdefault(names.PUBLISHED_AT, message.published_at.isoformat())
    if message.message_id:
        more.setdefault(names.MESSAGE_ID, message.message_id)
    kept = [
        (name, value)
        for name, value in headers
        # What a stranger says of tries before is not among the message's headers.
        if name not in more and (not name.startswith(names.PREFIX) or name in message.headers)
    ]
    return [*kept, *((name, text.encode(errors="replace")) for name, text in more.items())]


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="backslashreplace")


def _key_text(key: bytes | None) -> str:
    try:
        return key.decode() if key else ""
    except UnicodeDecodeError:
        # No text is invented for it: such a message has no key.
        return ""


def _raw_of(parts: Original) -> bytes | None:
    """Return what a message's fields do not tell; None if they tell everything."""
    if parts.value is not None and len({name for name, _ in parts.headers}) == len(parts.headers):
        try:
            for _, value in parts.headers:
                if value is None:
                    break
                value.decode()
            else:
                if parts.key is None or parts.key.decode():
                    return None
        except UnicodeDecodeError:
            pass
    headers = [(name, _base64(value)) for name, value in parts.headers]
    found = {"key": _base64(parts.key), "null": parts.value is None, "headers": headers}
    return json.dumps(found).encode()


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def unreadable(topic: str, raw: Any) -> Message:
    """Return the message of a record whose headers cannot be read."""
    return Message(topic, raw.value() or b"", f"{raw.topic()}-{raw.partition()}-{raw.offset()}")
