"""A message on its way to a broker, and how a request says it."""

import time
import zlib
from dataclasses import dataclass, field
from datetime import timedelta

from oncemq_adapters.rocketmq.remoting.protocol.codes import TEMPLATE, Place

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

    @property
    def dies(self) -> bool:
        """Whether the broker makes a dead letter of it."""
        return self.most_attempts is not None and self.attempts >= self.most_attempts

    @property
    def plain(self) -> bool:
        """Whether it can be sent together with others."""
        small = len(self.body) <= COMPRESS_FROM and not self.packing
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
        "a": group,
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
