"""Packed bodies: gzip from clients of the proxy, zlib from those of the remoting protocol; both are called gzip."""

import zlib
from typing import Any

from oncemq_adapters.rocketmq.remoting.protocol.message_codec import LARGEST_BODY

_IDENTITY, _GZIP = 1, 2
_EITHER = 32 + zlib.MAX_WBITS


def unpack(raw: Any) -> str:
    """Unpack a message's body in place; returns why that is not possible, empty if it was."""
    system = raw.system_properties
    if system.body_encoding != _GZIP:
        return ""
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
