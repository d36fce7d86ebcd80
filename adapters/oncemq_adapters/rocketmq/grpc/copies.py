"""Copies of received messages, unpacked: a retry of its group, or a dead letter.

The proxy refuses RocketMQ's own properties, so all history travels in headers of ours.
"""

import os
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from oncemq.contracts.adapter import ParkedDeadLetter
from oncemq.errors import BrokerRefused
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq_adapters.rocketmq.grpc.held_leases import Shelf
from oncemq_adapters.rocketmq.grpc.requests import Sending
from oncemq_adapters.rocketmq.grpc.topics import ProxiedTopic, leased_retry_topic
from oncemq_adapters.rocketmq.properties import (
    by_stranger,
    check_size,
    for_burial,
    for_next_hop,
    for_publishing,
    read_message,
    refuse_unread,
    split_keys,
)
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import REMOVED
from oncemq_adapters.rocketmq.sealed_copies import opened, sealed
from oncemq_adapters.rocketmq_client.names import dead_topic
from oncemq_adapters.rocketmq_client.properties import (
    KEYS,
    TAGS,
    UNIQUE_ID,
    to_text,
)
from oncemq_adapters.rocketmq_client.protocol import LARGEST_BODY, kind_of
from oncemq_adapters.rocketmq_client.protocol import unpack as unpack_kind

_IDENTITY, _GZIP = 1, 2
_EITHER = 32 + zlib.MAX_WBITS


def unpack(raw: Any) -> str:
    """Unpack a message's body in place; returns why that is not possible, empty if it was."""
    system = raw.system_properties
    if system.body_encoding != _GZIP:
        return ""
    if kind := kind_of(raw.body):
        body, trouble = unpack_kind(raw.body, kind)
        if not trouble:
            raw.body = body
            system.body_encoding = _IDENTITY
        return trouble
    try:
        unpacker = zlib.decompressobj(_EITHER)
        body = unpacker.decompress(raw.body, LARGEST_BODY + 1)
    except zlib.error as error:
        return f"its body cannot be unpacked: {error}"
    if not unpacker.eof or len(body) > LARGEST_BODY:
        return f"its body is cut off, or longer than {LARGEST_BODY} bytes"
    raw.body = body
    system.body_encoding = _IDENTITY
    return ""


GIVEN_BACK = f"{names.PREFIX}given-back"
"""It was delivered before and never started."""

_KIND_OF_TOPIC, _NO_RETRY = 4, "0"

# A proxy's defaults, with room for its own additions.
_MOST_PROPERTIES, _LONGEST_PROPERTIES, _LONGEST_ID = 100, 15_000, 200
_SYSTEM = frozenset({"BUYER_ID", "EXTEND_UNIQ_INFO", "PROPAGATE", "MSG_TYPE"})
"""Names that a proxy takes from no client, besides those that no copy keeps."""


def unique_id() -> str:
    """Return an id unlike any other's."""
    return os.urandom(16).hex().upper()


def stored_properties(raw: Any) -> dict[str, str]:
    """Return a message's properties as the other drivers know them."""
    system = raw.system_properties
    properties = dict(raw.user_properties)
    if system.keys:
        properties[KEYS] = " ".join(system.keys)
    if system.tag:
        properties[TAGS] = system.tag
    if system.message_id:
        properties[UNIQUE_ID] = system.message_id
    return properties if _is_retry(system.receipt_handle) else dict(by_stranger(properties))


def _is_retry(handle: str) -> bool:
    """Return whether a message was taken from the group's own retries: the proxy gives it its first topic back.

    A handle says where the message lies: two times, a duration, a queue, the kind of topic, then broker, queue, offset.
    """
    parts = handle.split(" ")
    return len(parts) <= _KIND_OF_TOPIC or parts[_KIND_OF_TOPIC] != _NO_RETRY


def read_taken(topic: str, raw: Any, *, fifo: bool) -> Message:
    """Return the message as handlers and the framework see it.

    Args:
        topic: the topic's name in the app.
        raw: as received.
        fifo: its tries are counted by the broker.
    """
    trouble = unpack(raw)
    if names.SEALED in raw.user_properties and _is_retry(raw.system_properties.receipt_handle):
        _open(raw)
    system, properties = raw.system_properties, stored_properties(raw)
    given_back = properties.pop(GIVEN_BACK, None)
    tries = max(1, system.delivery_attempt)
    message = read_message(
        topic, raw.body, properties, system.born_timestamp.ToMilliseconds(), tries if fifo else 1, system
    )
    if trouble:
        refuse_unread(message, trouble)
    if given_back is not None or tries > 1:
        object.__setattr__(message, "redelivered", True)
    return message


def new_message(topic: ProxiedTopic, message: OutgoingMessage, now: datetime) -> Sending:
    """Return a message to be published.

    Raises:
        BrokerRefused: RocketMQ does not take it.
    """
    if not message.body:
        raise BrokerRefused("RocketMQ accepts no message with an empty body")
    if topic.fifo and not message.key:
        raise BrokerRefused(
            f"topic {topic.topic!r} is fifo: every message needs a key, which decides its order"
        )
    if topic.fifo and message.delay:
        raise BrokerRefused(f"topic {topic.topic!r} is fifo: RocketMQ delays no message of such a topic")
    properties = for_publishing(message, now, unique_id())
    group = message.key or "" if topic.fifo else ""
    return _sending(topic.name, message.body, properties, message.delay or timedelta(0), group)


def retry_copy(shelf: Shelf, raw: Any, headers: Mapping[str, str], delay: timedelta) -> Sending:
    """Return the copy that comes back to the group after the delay.

    Raises:
        BrokerRefused: the headers are too large.
    """
    properties = for_next_hop(stored_properties(raw), headers)
    properties.setdefault(names.PUBLISHED_AT, _born(raw))
    if names.MESSAGE_ID not in properties and raw.system_properties.message_id:
        properties[names.MESSAGE_ID] = raw.system_properties.message_id
    if GIVEN_BACK not in headers:
        properties.pop(GIVEN_BACK, None)
    properties[UNIQUE_ID] = unique_id()
    return copy_to(leased_retry_topic(shelf.group, shelf.topic), raw.body, properties, delay)


def given_back_copy(shelf: Shelf, raw: Any) -> Sending:
    """Return the copy of a delivery that was never started."""
    return retry_copy(shelf, raw, {GIVEN_BACK: "1"}, timedelta(0))


def dead_copy(shelf: Shelf, raw: Any, headers: Mapping[str, str]) -> Sending:
    """Return the copy that becomes a dead letter.

    Raises:
        BrokerRefused: the headers are too large.
    """
    added = {names.PUBLISHED_AT: _born(raw), names.MESSAGE_ID: raw.system_properties.message_id}
    properties = _no_mark(for_next_hop(stored_properties(raw), headers))
    for name, text in added.items():
        if text:
            properties.setdefault(name, text)
    properties[names.ORIGIN_TOPIC] = shelf.topic
    properties[UNIQUE_ID] = unique_id()
    properties.pop(GIVEN_BACK, None)
    return copy_to(dead_topic(shelf.group), raw.body, properties)


def burial_copy(burial: ParkedDeadLetter, topic: str, group: str) -> Sending:
    """Return a dead letter made of a message that no broker holds.

    Raises:
        BrokerRefused: the headers are too large.
    """
    properties = _no_mark(for_burial(burial.message, burial.headers, unique_id()))
    properties[names.ORIGIN_TOPIC] = topic
    return copy_to(dead_topic(group), burial.message.body, properties)


def _born(raw: Any) -> str:
    return str(raw.system_properties.born_timestamp.ToDatetime().isoformat()) + "+00:00"


def copy_to(topic: str, body: bytes, properties: dict[str, str], delay: timedelta = timedelta(0)) -> Sending:
    """Return a copy for a topic of the group's own: as it is, or sealed where the proxy would refuse it."""
    if not _proxied(properties):
        properties, body = sealed(properties, body)
    return _sending(topic, body, properties, delay)


def _proxied(properties: Mapping[str, str]) -> bool:
    """Return whether a proxy takes these: it is stricter than brokers are with other clients."""
    own = {name: text for name, text in properties.items() if name not in (KEYS, TAGS, UNIQUE_ID)}
    tag, unique = properties.get(TAGS, "x"), properties.get(UNIQUE_ID, "")
    return (
        len(own) <= _MOST_PROPERTIES
        and len(to_text(own).encode(errors="replace")) <= _LONGEST_PROPERTIES
        and all(name and name not in _SYSTEM and name.isprintable() for name in own)
        and all(text.isprintable() for text in own.values())
        and properties.get(KEYS, "").isprintable()
        and bool(tag.strip())
        and tag.isprintable()
        and "|" not in tag
        and len(unique) <= _LONGEST_ID
    )


def _open(raw: Any) -> None:
    """Unseal a copy in place."""
    found = opened(raw.user_properties, raw.body)
    if found is None:
        return
    properties, raw.body, _ = found
    system = raw.system_properties
    del system.keys[:]
    system.keys.extend(split_keys(properties.pop(KEYS, "")))
    system.tag = properties.pop(TAGS, "")
    properties.pop(UNIQUE_ID, None)
    raw.user_properties.clear()
    raw.user_properties.update(properties)


def _no_mark(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties of a dead letter, which must not pass for a mark of the group's own."""
    if properties.get(TAGS) == REMOVED:
        del properties[TAGS]
    return properties


def _sending(
    topic: str,
    body: bytes,
    properties: dict[str, str],
    delay: timedelta = timedelta(0),
    message_group: str = "",
) -> Sending:
    check_size(properties)
    keys = split_keys(properties.pop(KEYS, ""))
    tag, unique = properties.pop(TAGS, ""), properties.pop(UNIQUE_ID)
    return Sending(topic, body, properties, unique, keys, tag, message_group, delay)
