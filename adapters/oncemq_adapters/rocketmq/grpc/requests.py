"""Requests as the proxy's protocol wants them, and what its answers to a receive hold."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from rocketmq.grpc_protocol import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    Encoding,
    MessageType,
    QueryRouteRequest,
    SendMessageRequest,
)

from oncemq_adapters.rocketmq.grpc.errors import NOTHING_NOW, meaning_of


class Taken(NamedTuple):
    """A message as it was received.

    Args:
        raw: the protocol's own value.
        endpoints: where it is settled.
    """

    raw: Any
    endpoints: Any


class Sending(NamedTuple):
    """A message to be sent.

    Args:
        topic: by its real name.
        body: not empty.
        properties: the application's.
        unique_id: unlike any other's.
        keys: in order.
        tag: empty = none.
        message_group: those of one group are kept in order; empty = none.
        delay: not before this long from now.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    unique_id: str
    keys: Sequence[str] = ()
    tag: str = ""
    message_group: str = ""
    delay: timedelta = timedelta(0)


class Consumed(NamedTuple):
    """The result of a receive.

    Args:
        messages: what came before it ended.
        broken_off: why it ended before its time; what should have come next stays out of sight for a lease.
    """

    messages: Sequence[Taken]
    broken_off: Exception | None


def consumed(parts: Iterable[Any], endpoints: Any, broken_off: Exception | None = None) -> Consumed:
    """Return the messages of an answer to a receive.

    Args:
        parts: of the answer.
        endpoints: where the messages are settled.
        broken_off: why no more parts came.

    Raises:
        Exception: there are no messages for another reason than that there are none; of ours where a status says so.
    """
    found = []
    for part in parts:
        if part.HasField("message"):
            found.append(Taken(part.message, endpoints))
        elif part.HasField("status") and part.status.code not in NOTHING_NOW:
            broken_off = meaning_of(part.status) or broken_off
    if broken_off is not None and not found:
        raise broken_off
    return Consumed(found, broken_off)


def route_request(endpoints: Any, topic: str) -> Any:
    """Return the question where a topic is."""
    request = QueryRouteRequest()
    request.topic.name = topic
    request.endpoints.CopyFrom(endpoints)
    return request


def acknowledgement(group: str, topic: str, handles: Iterable[tuple[str, str]]) -> Any:
    """Return the request that finishes (message id, receipt handle) of one topic."""
    request = AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    for message_id, handle in handles:
        entry = request.entries.add()
        entry.message_id, entry.receipt_handle = message_id, handle
    return request


def extension(group: str, topic: str, message_id: str, handle: str, by: timedelta) -> Any:
    """Return the request that makes a lease end so long from now."""
    request = ChangeInvisibleDurationRequest()
    request.group.name, request.topic.name = group, topic
    request.message_id, request.receipt_handle = message_id, handle
    request.invisible_duration.FromTimedelta(by)
    return request


def send_request(sending: Sending) -> Any:
    """Return the request that stores a message, its delay counted from now."""
    request = SendMessageRequest()
    message = request.messages.add()
    message.topic.name = sending.topic
    message.body = sending.body
    message.user_properties.update(sending.properties)
    system = message.system_properties
    now = round(time.time() * 1000)
    system.message_id = sending.unique_id
    system.message_type = MessageType.NORMAL
    system.body_encoding = Encoding.IDENTITY
    system.born_timestamp.FromMilliseconds(now)
    system.keys.extend(sending.keys)
    if sending.tag:
        system.tag = sending.tag
    if sending.message_group:
        system.message_type = MessageType.FIFO
        system.message_group = sending.message_group
    elif sending.delay > timedelta(0):
        # The package would send seconds alone.
        system.message_type = MessageType.DELAY
        system.delivery_timestamp.FromMilliseconds(now + round(sending.delay.total_seconds() * 1000))
    return request
