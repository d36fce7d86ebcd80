"""Requests for offsets: committed, first and last of a queue."""

import re
from datetime import datetime

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin.queue_browser import browsing_fields
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame
from oncemq_adapters.rocketmq_client.names import FIRST, LAST
from oncemq_adapters.rocketmq_client.protocol.connection import Connection, Fields


def committed_offset(connection: Connection, group: str, topic: str, number: int) -> int | None:
    """Return a group's committed offset; None if there is none."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(number),
        "setZeroIfNotFound": "false",
    }
    try:
        return _offset(connection.call(codes.QUERY_OFFSET, fields)[0])
    except Denied as denied:
        if denied.code == codes.QUERY_NOT_FOUND:
            return None
        raise


def commit_offset(connection: Connection, group: str, topic: str, number: int, offset: int) -> None:
    """Commit an offset and wait."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(number),
        "commitOffset": str(offset),
    }
    connection.call(codes.UPDATE_OFFSET, fields)


def first_offset(
    connection: Connection, topic: str, number: int, start: str | datetime, group: str = ""
) -> int:
    """Return where a group begins that was never in a queue.

    Args:
        connection: to the queue's broker.
        topic: by its real name.
        number: of the queue.
        start: `first`, `last` or a moment.
        group: by its real name; in its name a pull says the first and the last offset to an account that may only consume.
    """
    fields = {"topic": topic, "queueId": str(number)}
    if start in _BOUNDS:
        code, name = _BOUNDS[str(start)]
        try:
            return _offset(connection.call(code, fields)[0])
        except Denied as denied:
            if denied.code != codes.NO_PERMISSION or not group:
                raise
            return _offset({"offset": _bounds(connection, group, topic, number).get(name, "")})
    if isinstance(start, datetime):
        fields["timestamp"] = str(round(start.timestamp() * 1000))
    return _offset(connection.call(codes.SEARCH_OFFSET, fields)[0])


def last_offset(connection: Connection, topic: str, number: int, group: str = "") -> int:
    """Return the offset of the next message that will be stored in a queue."""
    return first_offset(connection, topic, number, LAST, group)


def unsettled(connection: Connection, group: str, topic: str) -> int | None:
    """Return how many messages a broker's queues have delivered beyond the committed offsets; None before RocketMQ 5."""
    _, body = connection.call(codes.CONSUME_STATS, {"consumerGroup": group, "topic": topic})
    total = 0
    # The keys of this JSON are objects, so that no parser reads it: the values are found by their braces.
    for queue in _QUEUE_STATS.findall(body):
        figures = {name: int(number) for name, number in _FIGURE.findall(queue)}
        if b"pullOffset" not in figures:
            return None
        total += max(0, figures[b"pullOffset"] - max(0, figures.get(b"consumerOffset", 0)))
    return total


_BOUNDS = {FIRST: (codes.MIN_OFFSET, "minOffset"), LAST: (codes.MAX_OFFSET, "maxOffset")}
"""The request for an end of a queue, and its field in the answer to a pull."""


def _bounds(connection: Connection, group: str, topic: str, number: int) -> Fields:
    try:
        fields, _ = connection.call(codes.PULL_MESSAGE, browsing_fields(topic, number, 0, group=group))
    except Denied as denied:
        if denied.code not in codes.PULLED_NOTHING:
            raise
        return denied.fields
    return fields


_QUEUE_STATS = re.compile(rb"\}:\{([^{}]*)\}")
_FIGURE = re.compile(rb'"?(pullOffset|consumerOffset)"?:(-?\d+)')


def _offset(fields: Fields) -> int:
    try:
        return int(fields["offset"])
    except (KeyError, ValueError) as error:
        raise MalformedFrame("an answer of RocketMQ names no offset") from error
