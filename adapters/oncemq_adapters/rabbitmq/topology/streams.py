"""Looks at a stream without moving anything: whether it is one, and from which offset to which it holds messages."""

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from pika.exceptions import ChannelClosed

from oncemq.contracts.broadcast import Positions
from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq_adapters.rabbitmq.connection import errors as faults
from oncemq_adapters.rabbitmq.topology.queue_type import insist_on_queue
from oncemq_adapters.start import FIRST

OFFSET: Final = "x-stream-offset"
"""Argument of a subscription: where it begins. Header of a delivery: its offset."""

QUEUE: Final = ""
"""The ledger's name of the only queue of a stream."""

_ANSWER_WITHIN = 5.0
_NOTHING_AFTER = 1.0
_CHUNK = 10_000
"""More than the messages of the largest chunk, in which a stream's messages are stored."""

QUIET = 0.1
"""Seconds without a further message of a chunk, after which it has ended."""


class Ends(NamedTuple):
    """What a stream holds.

    Args:
        first: offset of its oldest message; what was before is deleted.
        end: offset that its next message will have.
    """

    first: int
    end: int


def insist_on_stream(connection: Any, stream: str, topic: str) -> None:
    """Look whether a stream exists.

    Raises:
        BrokerRefused: it does not, is a queue of another type, or may not be read.
    """
    try:
        connection.channel().queue_declare(stream, passive=True)
    except ChannelClosed as error:
        advice = (
            f"topic {topic!r} says stream: {stream}, which is never declared here, since how long it keeps messages is its "
            "owner's choice – declare it with x-queue-type: stream, and x-max-age or x-max-length-bytes"
        )
        raise faults.declaring(error, "queue", stream, advice) from error
    try:
        insist_on_queue(connection, stream)
    except BrokerRefused:
        return  # as wished
    except ChannelClosed as error:
        raise faults.declaring(error, "queue", stream, "let this account read it") from error
    raise BrokerRefused(
        f"topic {topic!r} says stream: {stream}, but that is a queue and no stream – write queue: {stream}"
    )


def ends_of(connection: Any, stream: str) -> Ends:
    """Return what a stream holds.

    The end is read from its last chunk: the count that the broker tells is some seconds old.

    Raises:
        BrokerRefused: it does not exist, or may not be read.
        BrokerUnavailable: it did not answer in time.
    """
    try:
        count = int(connection.channel().queue_declare(stream, passive=True).method.message_count)
    except ChannelClosed as error:
        raise faults.declaring(error, "queue", stream, "declare it again") from error
    patience = _ANSWER_WITHIN if count else _NOTHING_AFTER
    last = _offsets(connection, stream, "last", _CHUNK, patience)
    if not last:
        if count:
            raise BrokerUnavailable(f"the stream {stream!r} did not deliver its last messages in time")
        return Ends(0, 0)
    first = _offsets(connection, stream, "first", 1, _ANSWER_WITHIN)
    if not first:
        raise BrokerUnavailable(f"the stream {stream!r} did not deliver its first message in time")
    return Ends(first[0], max(last) + 1)


def waiting(connection: Any, stream: str, start: str | datetime, positions: Positions | None) -> int:
    """Return how many messages of a stream a group has not read.

    Args:
        connection: pika's.
        stream: its name.
        start: where a group begins that was never there.
        positions: how far the group has read.
    """
    first, end = ends_of(connection, stream)
    at = positions.read(stream).get(QUEUE) if positions is not None else None
    if at is None and isinstance(start, datetime):
        at = offset_at(connection, stream, start)
    if at is None:
        at = first if start == FIRST else end
    return max(0, end - max(first, at))


def offset_at(connection: Any, stream: str, moment: datetime) -> int | None:
    """Return the offset where messages of a moment begin, some earlier ones included; None if all are older."""
    found = _offsets(connection, stream, moment, 1, _NOTHING_AFTER)
    return found[0] if found else None


def _offsets(connection: Any, stream: str, begin: Any, most: int, within: float) -> Sequence[int]:
    """Return the offsets of up to so many messages that come together, once the first one has come; none if none comes."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=most)
    found: list[int] = []

    def take(_channel: Any, _method: Any, properties: Any, _body: bytes) -> None:
        found.append(int(properties.headers[OFFSET]))

    channel.basic_consume(stream, take, arguments={OFFSET: begin})
    until = time.monotonic() + within
    while len(found) < most and (left := until - time.monotonic()) > 0:
        before = len(found)
        connection.process_data_events(time_limit=left)
        if len(found) > before:
            until = time.monotonic() + QUIET
    with suppress(ChannelClosed):
        channel.close()
    return found
