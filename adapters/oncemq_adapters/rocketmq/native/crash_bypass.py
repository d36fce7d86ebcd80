"""Handles in Python messages that crash librocketmq: the next ones of each queue, when its processes crash repeatedly.

The library unpacks every body as zlib, also those that LZ4 or ZSTD packed or that are not packed at all, and crashes on
them with all that it has pulled. So do all its members of the group, one after the other, for ever.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import NamedTuple

from oncemq_adapters.rocketmq.native.inbox import Held
from oncemq_adapters.rocketmq.native.message_reader import PULLED
from oncemq_adapters.rocketmq.native.progress import Progress, Queue
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import browsing_fields, committed_offset, first_offset
from oncemq_adapters.rocketmq_client.connections import Brokers, Routes
from oncemq_adapters.rocketmq_client.errors import Denied
from oncemq_adapters.rocketmq_client.names import FIRST
from oncemq_adapters.rocketmq_client.protocol import (
    UNPACKED_AT_ONCE,
    Connection,
    StoredMessage,
    decode,
)

_SIZE = struct.Struct(">i")
_FLAGS_AT = 36
_COMPRESSED, _KIND_AT, _KINDS = 1, 8, 7
_ZLIB = (0, 3)


class Head(NamedTuple):
    """The messages at the group's position in a queue.

    Args:
        queue: which.
        messages: the next ones, in order.
        fatal: how many of them have to be handled before the library can go on; 0 = it can take all.
    """

    queue: Queue
    messages: Sequence[StoredMessage]
    fatal: int


def heads_of(routes: Routes, brokers: Brokers, topics: Iterable[str], group: str) -> Sequence[Head]:
    """Return the head of each queue in which something waits.

    Raises:
        BrokerError: a broker does not say.
    """
    found = []
    for topic in topics:
        for broker, number in routes.ask(topic).readable:
            connection = brokers.get(broker)
            at = committed_offset(connection, group, topic, number)
            if at is None:  # a retry topic of which nothing was finished
                at = first_offset(connection, topic, number, FIRST)
            messages, fatal = _next_of(connection, topic, number, at)
            if messages:
                found.append(Head(Queue(broker, topic, number), messages, fatal))
    return found


def _next_of(connection: Connection, topic: str, number: int, at: int) -> tuple[Sequence[StoredMessage], int]:
    messages: list[StoredMessage] = []
    fatal, unpacked = 0, 0
    # The library pulls from any of them on while it holds others.
    while len(messages) < 2 * PULLED and unpacked < UNPACKED_AT_ONCE:
        try:
            answer, body = connection.call(codes.PULL_MESSAGE, browsing_fields(topic, number, at))
        except Denied as denied:
            following = int(denied.fields.get("nextBeginOffset", at))
            if denied.code != codes.PULL_AT_ONCE or following <= at:
                break
            at = following
            continue
        pulled, cut = decode(body, topic, at, opened)
        for message, flags in zip(pulled, _flags(body), strict=not cut):
            messages.append(message)
            unpacked += message.unpacked
            if is_fatal(message, flags):
                fatal = len(messages)
        at = messages[-1].offset + 1 if cut else int(answer["nextBeginOffset"])
    return messages, fatal


def is_fatal(message: StoredMessage, flags: int) -> bool:
    """Return whether librocketmq crashes on a message: its body is packed, and not by zlib."""
    if not flags & _COMPRESSED:
        return False
    return bool(message.trouble) or flags >> _KIND_AT & _KINDS not in _ZLIB


def _flags(pulled: bytes) -> Sequence[int]:
    found, at = [], 0
    while at < len(pulled):
        (size,) = _SIZE.unpack_from(pulled, at)
        found.append(_SIZE.unpack_from(pulled, at + _FLAGS_AT)[0] if size >= _FLAGS_AT + _SIZE.size else 0)
        at += size
    return found


class PythonSession:
    """What holds messages while no process with librocketmq lives.

    Args:
        generation: higher than that of every earlier session.
        progress: of the group's queues.
        on_done: called when everything is settled.
    """

    def __init__(self, generation: int, progress: Progress, on_done: Callable[[], None]) -> None:
        self.generation = generation
        self.alive = True
        self._progress = progress
        self._on_done = on_done
        self._lock = Lock()
        self._open = 0

    @property
    def done(self) -> bool:
        """Whether everything is settled."""
        return not self._open

    def hold(self, many: Sequence[Held]) -> None:
        """Record the messages to be delivered."""
        self._open += len(many)
        for held in many:
            self._progress.received(held.queue, [held.stored])

    def finish(self, many: Sequence[Held]) -> bool:
        """Note that messages are gone for good; False if they were void."""
        if not self.alive:
            return False
        self._progress.settled([(held.queue, held.stored.offset) for held in many])
        with self._lock:
            self._open -= len(many)
        return True

    def let_pass(self, many: Sequence[Held]) -> None:  # noqa: ARG002
        """Continue when everything is settled: there is no process to notify."""
        if self.done:
            self._on_done()
