"""Converts RocketMQ's properties to our messages: what handlers see, and what travels on with a retry or dead letter.

Properties are text without the two separators. What cannot stand there – an empty value, a name that means
something to RocketMQ – travels as JSON in one property of ours, and handlers see no difference.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from oncemq.errors import BrokerRefused
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage, make_message
from oncemq.message.headers import ATTEMPT, FIRST_FAILED_AT, MESSAGE_ID, PUBLISHED_AT, attempt_of, time_of
from oncemq_adapters.rocketmq_client.properties import (
    ATTEMPTS,
    DEAD_ORIGIN_ID,
    DEAD_ORIGIN_TOPIC,
    KEYS,
    LONGEST_PROPERTIES,
    MOST_ATTEMPTS,
    NAME_END,
    ORIGIN_ID,
    ORIGIN_TOPIC,
    TAGS,
    UNIQUE_ID,
    VALUE_END,
    to_text,
)

ROOM_FOR_MARKS = 600
"""Bytes for what says to RocketMQ where a copy comes from."""

TAGS_HEADER = "tags"
ESCAPED = f"{names.PREFIX}escaped"
EXACT_KEYS = f"{names.PREFIX}keys"
UNREADABLE = "rocketmq-unreadable"
"""The encoding of a body that cannot be unpacked here."""

_OURS = frozenset({KEYS, TAGS, UNIQUE_ID, ESCAPED, EXACT_KEYS})
_HISTORY = frozenset(
    {
        *(ORIGIN_TOPIC, ORIGIN_ID, ATTEMPTS, MOST_ATTEMPTS, DEAD_ORIGIN_TOPIC, DEAD_ORIGIN_ID),
        *(
            "DELAY",
            "WAIT",
            "TRAN_MSG",
            "PGROUP",
            "MIN_OFFSET",
            "MAX_OFFSET",
            "REAL_TOPIC",
            "REAL_QID",
            "CLUSTER",
        ),
        *(
            "CONSUME_START_TIME",
            "TRACE_ON",
            "MSG_REGION",
            "TRACE_CONTEXT",
            "POP_CK",
            "1ST_POP_TIME",
            "INNER_NUM",
        ),
        *("BORN_TIMESTAMP", "BORN_HOST", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "__SHARDINGKEY"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
        *("INSTANCE_ID", "EXTEND_UNIQ_INFO", "DUP_INFO", "REDIRECT", "__CRC32#", "UNIQ_PRODUCER_GROUP_NAME"),
    }
)
_HISTORY_PREFIXES = ("TIMER_", "__")
_RESERVED = _OURS | _HISTORY
_FORGEABLE = names.HISTORY | {
    *(ORIGIN_TOPIC, ORIGIN_ID, ATTEMPTS, MOST_ATTEMPTS, DEAD_ORIGIN_TOPIC, DEAD_ORIGIN_ID)
}


def by_stranger(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of a message from a topic that others publish to: without what only brokers and groups write."""
    escaped = _escaped(properties) if ESCAPED in properties else {}
    if _FORGEABLE.isdisjoint(properties) and _FORGEABLE.isdisjoint(escaped):
        return properties
    found = {name: value for name, value in properties.items() if name not in _FORGEABLE}
    left = {name: value for name, value in escaped.items() if name not in _FORGEABLE}
    if ESCAPED in found:
        found[ESCAPED] = json.dumps(left)
    return found


def is_history(name: str) -> bool:
    """Return whether a property is RocketMQ's own record of a message's way."""
    return name in _HISTORY or name.startswith(_HISTORY_PREFIXES)


def read_message(
    topic: str,
    body: bytes,
    properties: Mapping[str, str],
    born: int,
    attempt: int,
    metadata_source: Any = None,
) -> Message:
    """Return the message as handlers and the framework see it.

    Args:
        topic: the topic's name in the app.
        body: unpacked.
        properties: as stored.
        born: when it was first sent, milliseconds since 1970.
        attempt: 1 for the first try, as far as RocketMQ itself counts.
        metadata_source: for `RocketMQMetadata`.
    """
    headers = readable_headers(properties)
    # Most messages have few of these; a look is cheaper than a call that finds nothing.
    published_at = time_of(headers, PUBLISHED_AT) if PUBLISHED_AT in headers else None
    return make_message(
        topic,
        body,
        message_id=headers.get(MESSAGE_ID) or first_id(properties),
        headers=headers,
        keys=read_keys(properties) if KEYS in properties or EXACT_KEYS in properties else (),
        attempt=attempt_of(headers) if ATTEMPT in headers else attempt,
        redelivered=False,
        published_at=published_at or moment_of(born),
        first_failed_at=time_of(headers, FIRST_FAILED_AT) if FIRST_FAILED_AT in headers else None,
        metadata_source=metadata_source,
    )


def first_id(properties: Mapping[str, str]) -> str | None:
    """Return the id that the producer's client gave a message; None if there is none.

    The broker notes an id of its own, made of the message's place, when a Java member gives a message back. That id is
    another one than the first try had, so it counts only where the producer's client gave none.
    """
    return properties.get(UNIQUE_ID) or properties.get(ORIGIN_ID)


def refuse_unread(message: Message, trouble: str) -> None:
    """Make a fresh message one that is refused: its encoding is unknown, so its bytes become a dead letter as they are."""
    headers = {**message.headers, names.CONTENT_ENCODING: UNREADABLE, "rocketmq-trouble": trouble}
    object.__setattr__(message, "headers", headers)


def readable_headers(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the application's properties, escaped ones included, and the tag under `tags`."""
    found = {
        name: value
        for name, value in properties.items()
        if name not in _RESERVED and not name.startswith(_HISTORY_PREFIXES)
    }
    if TAGS in properties:
        found[TAGS_HEADER] = properties[TAGS]
    if ESCAPED in properties:
        found.update(_escaped(properties))
    return found


def read_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the business keys: RocketMQ separates several by blanks."""
    if EXACT_KEYS in properties:
        try:
            exact = json.loads(properties[EXACT_KEYS])
        except (ValueError, RecursionError):
            exact = None
        if isinstance(exact, list) and all(isinstance(key, str) for key in exact):
            return tuple(exact)
    return tuple(split_keys(properties.get(KEYS, "")))


def split_keys(text: str) -> list[str]:
    """Return the keys of a text that RocketMQ holds: blanks separate them, and no other white space."""
    return [key for key in text.split(" ") if key]


def moment_of(milliseconds: int) -> datetime | None:
    """Return the aware time of a time stamp; None for nonsense."""
    try:
        return names.plausible(datetime.fromtimestamp(milliseconds / 1000, UTC)) if milliseconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def for_publishing(message: OutgoingMessage, now: datetime, unique_id: str) -> dict[str, str]:
    """Return the properties of a new message."""
    headers = {names.PUBLISHED_AT: now.isoformat(), **message.headers}
    if message.message_id is not None:
        headers[names.MESSAGE_ID] = message.message_id
    tags = headers.pop(TAGS_HEADER, None)
    properties = with_headers({UNIQUE_ID: unique_id}, headers)
    if tags:
        properties[TAGS] = _plain(tags, "tag")
    if message.key is not None:
        _write_keys(properties, [message.key])
    return properties


def for_burial(message: Message, added: Mapping[str, str], unique_id: str) -> dict[str, str]:
    """Return the properties of a dead letter that is made of a message which no queue holds."""
    headers = {**message.headers, **added}
    if message.message_id is not None:
        headers.setdefault(names.MESSAGE_ID, message.message_id)
    if message.published_at is not None:
        headers.setdefault(names.PUBLISHED_AT, message.published_at.isoformat())
    tags = headers.pop(TAGS_HEADER, None)
    properties = with_headers({UNIQUE_ID: unique_id}, headers)
    if tags:
        properties[TAGS] = _plain(tags, "tag")
    _write_keys(properties, message.keys)
    return properties


def for_next_hop(properties: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a copy: everything as it was, `added` headers over it, no history of its way."""
    kept = {name: value for name, value in properties.items() if not is_history(name)}
    copy: dict[str, str] = {}
    for headers in names.shorter(added):
        copy = with_headers(kept, headers)
        if len(to_text(copy).encode(errors="replace")) <= LONGEST_PROPERTIES - ROOM_FOR_MARKS:
            break
    return copy


def for_replay(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a replayed dead letter: without our attempts and causes."""
    own = {name: properties[name] for name in _OURS - {ESCAPED} if name in properties}
    headers = readable_headers(properties)
    headers.pop(TAGS_HEADER, None)
    return with_headers(own, names.for_replay(headers))


def with_headers(properties: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Return properties with headers written over them, escaped where they cannot stand as they are."""
    result = dict(properties)
    escaped = _escaped(properties) if ESCAPED in properties else {}
    for name, value in headers.items():
        escaped.pop(name, None)
        if name not in _RESERVED:
            result.pop(name, None)
        if _stands(name, value):
            result[name] = value
        else:
            escaped[name] = value
    result.pop(ESCAPED, None)
    if escaped:
        result[ESCAPED] = json.dumps(escaped)
    return result


def fits(properties: Mapping[str, str]) -> bool:
    """Return whether RocketMQ takes so much."""
    return len(to_text(properties).encode(errors="replace")) <= LONGEST_PROPERTIES


def check_size(properties: Mapping[str, str]) -> None:
    """Refuse properties that RocketMQ would not take.

    Raises:
        BrokerRefused: they are too long together, or cannot be encoded.
    """
    try:
        size = len(to_text(properties).encode())
    except UnicodeEncodeError as error:
        raise BrokerRefused(f"a key or tag cannot be sent as text: {error}") from error
    if size > LONGEST_PROPERTIES:
        raise BrokerRefused(
            f"headers and keys take {size} bytes; RocketMQ takes {LONGEST_PROPERTIES} at most"
        )


def _stands(name: str, value: str) -> bool:
    if (
        not value
        or not name
        or name in _RESERVED
        or name == TAGS_HEADER
        or name.startswith(_HISTORY_PREFIXES)
    ):
        return False
    text = name + value
    return NAME_END not in text and VALUE_END not in text and text.isprintable()


def _escaped(properties: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(properties[ESCAPED])
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _write_keys(properties: dict[str, str], keys: Sequence[str]) -> None:
    # Others index and read the parts of a key with blanks; what it was stands beside them.
    indexed = " ".join(" ".join(_clean(key).split()) for key in keys)
    if indexed:
        properties[KEYS] = indexed
    if tuple([key for key in indexed.split(" ") if key]) != tuple(keys):
        properties[EXACT_KEYS] = json.dumps(list(keys))


def _clean(text: str) -> str:
    return "".join([character for character in text if character.isprintable()])


def _plain(text: str, what: str) -> str:
    if NAME_END in text or VALUE_END in text:
        raise BrokerRefused(
            f"the {what} {text!r} holds a character that RocketMQ uses to separate properties"
        )
    return text
