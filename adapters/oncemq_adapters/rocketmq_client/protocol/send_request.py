"""A message on its way to a broker, and how a request says it."""

import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from oncemq_adapters.rocketmq_client.codes import TEMPLATE, Place
from oncemq_adapters.rocketmq_client.properties import to_text

COMPRESS_FROM = 4096
"""Bytes, as Java's producer by default."""

_ZLIB = 0x301


@dataclass(slots=True)
class Outgoing:
    """One message to be stored.

    Args:
        topic: by its name on the broker.
        body: unpacked.
        properties: all but those of its delay.
        place: the broker and queue; None = the next one in turn.
        delay: not before this long from now.
        born: when it was first sent, milliseconds since 1970.
        attempts: RocketMQ's count of tries, for its retries.
        most_attempts: with which the broker compares that; None = the group's own.
        flag: the sender's own bits.
        ordered: it is stored behind those of its queue that were given before it.
        packing: the bits that say how the body is packed already; 0 = it is not.
        key: when one is refused, no later one with the same key is sent; None = it depends on no other.
        sender: the producer group in whose name it is sent; empty = the producer's own.
        reply: the broker pushes it to the client that its properties name.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    place: Place | None = None
    delay: timedelta = timedelta(0)
    born: int = field(default_factory=lambda: round(time.time() * 1000))
    attempts: int = 0
    most_attempts: int | None = None
    flag: int = 0
    ordered: bool = False
    packing: int = 0
    key: str | None = None
    sender: str = ""
    reply: bool = False

    @property
    def dies(self) -> bool:
        """Whether the broker makes a dead letter of it."""
        return self.most_attempts is not None and self.attempts >= self.most_attempts

    @property
    def plain(self) -> bool:
        """Whether it can be sent together with others."""
        small = len(self.body) <= COMPRESS_FROM and not self.packing and not self.reply
        return small and not self.delay and self.most_attempts is None and not self.topic.startswith("%")


def pack(body: bytes) -> tuple[bytes, int]:
    """Return a body as it is sent, and the flags that say how."""
    return (zlib.compress(body, 5), _ZLIB) if len(body) > COMPRESS_FROM else (body, 0)


def send_fields(group: str, message: Outgoing, queue: int, system: int, properties: str) -> dict[str, str]:
    """Return the fields of a request that sends a message.

    Args:
        group: how the brokers know the producer.
        message: what is sent.
        queue: where it goes.
        system: flags.
        properties: as they stand in a request.
    """
    return {
        "a": message.sender or group,
        "b": message.topic,
        "c": TEMPLATE,
        "d": "4",
        "e": str(queue),
        "f": str(system),
        "g": str(message.born),
        "h": str(message.flag),
        "i": properties,
        "j": str(message.attempts),
        "k": "false",
        "m": "false",
    }


BATCH_BYTES = 256 * 1024
BATCH_MESSAGES = 128

_HEAD, _LENGTH = struct.Struct(">iiiii"), struct.Struct(">h")


def batch_body(messages: Iterable[Outgoing]) -> bytes:
    """Return the body of a request that stores these messages, each with properties of its own."""
    parts = []
    for message in messages:
        text = to_text(message.properties).encode()
        size = _HEAD.size + len(message.body) + _LENGTH.size + len(text)
        parts.append(_HEAD.pack(size, 0, 0, message.flag, len(message.body)) + message.body)
        parts.append(_LENGTH.pack(len(text)) + text)
    return b"".join(parts)


def parcels(
    group: Sequence[tuple[int, int]], messages: Sequence[Outgoing]
) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield (queue, indices) of what is sent together, each queue's in order."""
    open_ones: dict[tuple[str, int], list[int]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for at, queue in group:
        message = messages[at]
        key = message.topic, queue
        size = len(message.body) + len(to_text(message.properties))
        full = sizes.get(key, 0) + size > BATCH_BYTES or len(open_ones.get(key, ())) >= BATCH_MESSAGES
        if key in open_ones and (full or not message.plain):
            yield queue, open_ones.pop(key)
            sizes.pop(key)
        if not message.plain:
            yield queue, [at]
            continue
        open_ones.setdefault(key, []).append(at)
        sizes[key] = sizes.get(key, 0) + size
    for (_, queue), indices in open_ones.items():
        yield queue, indices
