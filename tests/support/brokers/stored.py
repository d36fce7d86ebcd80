"""Messages as a broker of RocketMQ stores them and sends them out."""

import struct
from typing import Any

SHORT_TOPIC, LONG_TOPIC = -626843481, -626843477


def stored(
    body: bytes = b"x",
    *,
    topic: str = "topic",
    text: str = "KEYS\x01k\x02",
    magic: int = SHORT_TOPIC,
    **given: Any,
) -> bytes:
    """Return a message as a broker stores it."""
    system = given.get("system", 0)
    hosts = (
        bytes(20 if system & 16 else 8),
        bytes(20 if system & 32 else 8),
    )
    head = struct.pack(
        ">iiiiqqiq", magic, 0, 0, given.get("flag", 0), given.get("offset", 7), 99, system, 1000
    )
    rest = hosts[0] + struct.pack(">q", 2000) + hosts[1]
    rest += struct.pack(">iqi", given.get("attempts", 0), 0, len(body)) + body
    named, properties = topic.encode(), text.encode()
    rest += struct.pack(">h", len(named)) if magic == LONG_TOPIC else bytes([len(named)])
    rest += named + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(head) + len(rest)) + head + rest
