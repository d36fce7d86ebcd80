"""Undoes content encodings, with a limit on the decompressed size."""

import zlib
from typing import Final

from oncemq.errors import Undecodable

_WINDOW_BITS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
# Some AMQP producers put the charset here.
_PLAIN: Final = frozenset({"", "identity", "utf-8", "utf8", "us-ascii", "ascii", "binary"})


def decompress(body: bytes, encoding: str, largest: int) -> bytes:
    """Return `body` without its content encoding: `gzip` or `deflate` (in a zlib frame), case-insensitive.

    Args:
        body: as received.
        encoding: the header's text; one encoding, not a list.
        largest: maximum of bytes after decompression; more are never produced.

    Raises:
        Undecodable: the encoding is unknown, or the bytes do not match it, or the result is too large.
    """
    name = encoding.strip().lower()
    if name in _PLAIN:
        return body
    if name not in _WINDOW_BITS:
        raise Undecodable(f"the header content-encoding is {name[:40]!a}; known are gzip, deflate, identity")
    inflater = zlib.decompressobj(_WINDOW_BITS[name])
    try:
        plain = inflater.decompress(body, largest + 1)
    except zlib.error:
        raise Undecodable(f"the body is not {name}, though its header content-encoding says so") from None
    if len(plain) > largest:
        raise Undecodable(f"the body has more than {largest:,} bytes after decompression, which is the most")
    if not inflater.eof:
        raise Undecodable(f"the body ends in the middle of its {name} data")
    if inflater.unused_data:
        raise Undecodable(f"more follows after the end of the body's {name} data")
    return plain
