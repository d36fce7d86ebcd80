"""AMQP properties byte by byte, as careless and hostile producers send them and RabbitMQ passes them on."""

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from pika import BasicProperties

FRAME_MAX = 131_072
"""RabbitMQ's default; a header frame has 8 bytes of its own, and 12 before the properties."""
MOST_PROPERTIES = FRAME_MAX - 8 - 12


class Sent(BasicProperties):  # type: ignore[misc]
    """Properties that are sent as these bytes."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.raw = raw

    def encode(self) -> list[bytes]:
        """Return the bytes."""
        return [self.raw]


def long_string(kind: bytes, content: bytes) -> bytes:
    """Return a value with a length of four bytes: S, x, A or F."""
    return kind + struct.pack(">I", len(content)) + content


def entry(name: bytes, value: bytes) -> bytes:
    """Return an entry of a table."""
    return bytes((len(name),)) + name + value


def table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a table."""
    content = b"".join(entry(name, value) for name, value in entries)
    return struct.pack(">I", len(content)) + content


def nested(levels: int, kind: bytes = b"F") -> bytes:
    """Return so many tables or arrays inside each other."""
    value = b"V"
    for _ in range(levels):
        value = long_string(kind, entry(b"n", value) if kind == b"F" else value)
    return value


def headers_only(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return properties that hold headers and nothing else."""
    return struct.pack(">H", 0x2000) + table(entries)


def message_id_only(raw_id: bytes) -> bytes:
    """Return properties with this message id."""
    return struct.pack(">H", 0x0080) + bytes((len(raw_id),)) + raw_id


def content_type_only(raw: bytes) -> bytes:
    """Return properties with this content type."""
    return struct.pack(">H", 0x8000) + bytes((len(raw),)) + raw


def padded(size: int) -> bytes:
    """Return properties of exactly so many bytes."""
    head = headers_only([(b"pad", long_string(b"S", b""))])
    return headers_only([(b"pad", long_string(b"S", b"x" * (size - len(head))))])


VALUES: Mapping[str, bytes] = {
    "false": b"t\x00",
    "true": b"t\x01",
    "true as 7": b"t\x07",
    "int8": b"b\x80",
    "uint8": b"B\xff",
    "int16": b"s\x80\x00",
    "uint16": b"u\xff\xff",
    "int32": b"I\x80\x00\x00\x00",
    "uint32": b"i\xff\xff\xff\xff",
    "int64": b"l\x80\x00\x00\x00\x00\x00\x00\x00",
    "float": b"f" + struct.pack(">f", 0.1),
    "double": b"d" + struct.pack(">d", 0.1),
    "double 1e300": b"d" + struct.pack(">d", 1e300),
    "decimal": b"D\x02" + struct.pack(">i", 150),
    "decimal of 255 places": b"D\xff" + struct.pack(">i", -1),
    "timestamp": b"T" + struct.pack(">Q", 1_763_800_000),
    "timestamp in milliseconds": b"T" + struct.pack(">Q", 1_763_800_000_000),
    "timestamp of 2^63": b"T" + struct.pack(">Q", 2**63),
    "void": b"V",
    "text": long_string(b"S", "käse".encode()),
    "text that is not UTF-8": long_string(b"S", b"\xff\xfe\x00"),
    "text with NUL": long_string(b"S", b"a\x00b"),
    "text of half a surrogate pair": long_string(b"S", b"\xed\xa0\x80"),
    "bytes": long_string(b"x", bytes(range(256))),
    "empty array": long_string(b"A", b""),
    "array": long_string(b"A", b"t\x01V" + long_string(b"S", b"x")),
    "empty table": long_string(b"F", b""),
    "table": long_string(b"F", entry(b"a", b"V") + entry(b"\xff", b"t\x01")),
    "20 levels of tables": nested(20),
    "600 levels of tables": nested(600),
    "1,200 levels of arrays": nested(1200, b"A"),
}
"""One value of every type that RabbitMQ passes on, and its edges."""

NOT_FINITE: Mapping[str, bytes] = {
    "double NaN": b"d" + struct.pack(">d", float("nan")),
    "double infinite": b"d" + struct.pack(">d", float("-inf")),
    "float NaN": b"f" + struct.pack(">f", float("nan")),
}
"""RabbitMQ 3.10 ends the connection of a producer who sends these; others may not."""

MESSAGES: Mapping[str, bytes] = {
    **{f"header: {name}": headers_only([(b"h", value)]) for name, value in VALUES.items()},
    "a header name that is not UTF-8": headers_only([(b"\xff\xfe", b"V")]),
    "an empty header name": headers_only([(b"", b"V")]),
    "a header name of 255 bytes": headers_only([(b"n" * 255, b"V")]),
    "the same header twice": headers_only([(b"h", b"t\x00"), (b"h", b"t\x01")]),
    "a message id that is not UTF-8": message_id_only(b"\xff\xfe"),
    "a message id with NUL": message_id_only(b"a\x00b"),
    "a message id of 255 bytes": message_id_only(b"m" * 255),
    "a content type that is not UTF-8": content_type_only(b"\xff"),
    "headers of a whole frame": padded(MOST_PROPERTIES),
    "headers of a frame but one byte": padded(MOST_PROPERTIES - 1),
    "headers that ours push over": padded(MOST_PROPERTIES - 300),
}
"""Properties by what is odd about them."""


def send(channel: Any, exchange: str, routing_key: str, raw: bytes, body: bytes) -> None:
    """Publish a message with exactly these properties."""
    channel.basic_publish(exchange, routing_key, body, Sent(raw), mandatory=True)
