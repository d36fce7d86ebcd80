"""Looks into a queue without consuming: pulls by offset in the name of a group that every broker has."""

from collections.abc import Iterator
from time import monotonic, sleep

from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.errors import Denied, RocketMQError
from oncemq_adapters.rocketmq_client.protocol.connection import Connection, Fields
from oncemq_adapters.rocketmq_client.protocol.frames import loose_json
from oncemq_adapters.rocketmq_client.protocol.message_codec import (
    OpenCopy,
    StoredMessage,
    decode,
)

_GROUP = "TOOLS_CONSUMER"
_SUBSCRIPTION = 4
_END = frozenset({codes.PULL_NOT_FOUND, codes.PULL_OFFSET_MOVED})
_SHOWN_WITHIN = 2.0
_AGAIN_AFTER = 0.002


def browsing_fields(topic: str, number: int, at: int, tag: str = "*", group: str = _GROUP) -> Fields:
    """Return the fields of a pull that reads a queue from an offset on, without waiting."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(number),
        "queueOffset": str(at),
        "maxMsgNums": "32",
        "sysFlag": str(_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": tag,
        "subVersion": "0",
        "expressionType": "TAG",
    }


def browse(
    connection: Connection,
    topic: str,
    number: int,
    start: int,
    end: int,
    tag: str = "*",
    group: str = "",
    open_copy: OpenCopy | None = None,
) -> Iterator[StoredMessage]:
    """Yield the messages of a queue from one offset to before another; nothing is committed.

    Args:
        connection: to the queue's broker.
        topic: by its real name.
        number: of the queue.
        start: the first offset.
        end: the offset behind the last.
        tag: only messages with it; `*` = all.
        group: in whose name an account reads that may not read in that of RocketMQ's tools; empty = none.
        open_copy: looks into the messages of a group's own topics; None = they are as they are.
    """
    at, reader = start, _GROUP
    while at < end:
        try:
            answer, body = connection.call(
                codes.PULL_MESSAGE, browsing_fields(topic, number, at, tag, reader)
            )
        except Denied as denied:
            if denied.code == codes.NO_PERMISSION and group and reader != group:
                reader = group
                continue
            following = int(denied.fields.get("nextBeginOffset", at))
            if denied.code in _END or (denied.code == codes.PULL_AT_ONCE and following <= at):
                return
            if denied.code != codes.PULL_AT_ONCE:
                raise
            at = following
            continue
        messages, cut = decode(body, topic, at, open_copy)
        for message in messages:
            if message.offset >= end:
                return
            yield message
        at = messages[-1].offset + 1 if cut else int(answer["nextBeginOffset"])


def wait_until_shown(connection: Connection) -> None:
    """Wait until a broker shows in its queues what it had confirmed before: it does so a moment later.

    Where an account may not query the end, all available messages are read.
    """
    stored, deadline = 0, monotonic() + _SHOWN_WITHIN
    while monotonic() < deadline:
        try:
            table = loose_json(connection.call(codes.BROKER_STATUS, {})[1])["table"]
            end = int(table["commitLogMaxOffset"])
            shown = end - int(table["dispatchBehindBytes"])
        except (RocketMQError, KeyError, TypeError, ValueError):
            return
        stored = stored or end
        if shown >= stored:
            return
        sleep(_AGAIN_AFTER)
