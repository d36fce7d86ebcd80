"""Messages as brokers store and deliver them: one after the other, each with its length in front.

A message whose layout or compression is unknown is delivered as it is, with `trouble` saying why, so that it
ends as a dead letter and holds up no other.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from oncemq_adapters.rocketmq_client.errors import MalformedFrame
from oncemq_adapters.rocketmq_client.properties import from_text

LARGEST_BODY = 4 * 1024 * 1024
"""Bytes after unpacking: brokers store no larger message by default, and a pull of small bodies must not take a gigabyte."""
UNPACKED_AT_ONCE = 8 * 1024 * 1024
"""Bytes unpacked out of one pull; what follows is pulled again when there is room."""
MOST_UNPACKED = 64 * 1024 * 1024
"""Unpacked bytes in unsettled deliveries of one consumer; more are delivered when some are settled."""
_LARGEST_WINDOW = 8 * 1024 * 1024
"""Bytes that every ZSTD decoder should grant, however small the body."""
_PART = 256 * 1024

PACKING = 0x701
"""The bits of a message's flags that say how its body is packed."""
_COMPRESSED, _SENDER_6, _BROKER_6 = 1, 16, 32
_BATCH = 64 | 128
"""The bits of a message that holds others: a batch in a topic of `queue.type=BatchCQ`."""
_ZLIB, _LZ4, _ZSTD, _ZLIB_AGAIN = 0, 1, 2, 3
_KINDS = {b"\x04\x22\x4d\x18": _LZ4, b"\x28\xb5\x2f\xfd": _ZSTD}
_MAGIC_LONG_TOPIC = -626843477
_MAGICS = (_MAGIC_LONG_TOPIC, -626843481)

# size magic crc queue flag offset place sysflag born, host, stored, host, attempts prepared body's length
_HEAD = struct.Struct(">iiiiiqqiq8xq8xiqi")
_START = struct.Struct(">iiiiiqqiq")
_STORED, _TAIL = struct.Struct(">q"), struct.Struct(">iqi")
LONGEST_HEAD = _START.size + 20 + _STORED.size + 20 + 4
"""Bytes in which everything lies that a stored message says of itself before its body."""
# size magic crc flag body's length; then the body, the properties' length and the properties
_INNER = struct.Struct(">iiiii")
_INNER_COUNT = "INNER_NUM"
_SYSTEM_AT, _OFFSET_AT = 36, 20
"""Where a stored message has its system flags and its offset."""
_SIZE, _SHORT = struct.Struct(">i"), struct.Struct(">H")


class StoredMessage:
    """One message of a queue.

    Attributes:
        topic: where it lies, by its name on the broker.
        body: unpacked; packed as it came where that failed.
        properties: as stored.
        offset: its place in its queue.
        born: when it was sent, milliseconds since 1970.
        stored: when the broker stored it, the same.
        attempts: how often RocketMQ's own counting says that it was tried before.
        flag: the sender's own bits.
        trouble: why it cannot be understood; empty for a good one.
        packing: the bits that say how the body is packed, where it could not be unpacked; copies keep them.
        unpacked: bytes of the body if it was stored packed, else 0: a sender pays for far fewer than a consumer holds.
        head: its first bytes as stored, with queue, times and hosts; None if it cannot be read.
        ours: what its properties say of tries before was written by this process.
    """

    __slots__ = (
        "attempts",
        "body",
        "born",
        "flag",
        "head",
        "offset",
        "ours",
        "packing",
        "properties",
        "stored",
        "topic",
        "trouble",
        "unpacked",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        offset: int,
        born: int,
        stored: int,
        attempts: int,
        flag: int,
        trouble: str = "",
        packing: int = 0,
        unpacked: int = 0,
        head: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.offset = offset
        self.born = born
        self.stored = stored
        self.attempts = attempts
        self.flag = flag
        self.trouble = trouble
        self.packing = packing
        self.unpacked = unpacked
        self.head = head
        self.ours = False


OpenCopy = Callable[[Mapping[str, str], bytes], tuple[dict[str, str], bytes, int] | None]
"""Returns the message that a copy in a group's own topic holds whole – properties, body and its packing; None for any other."""


class Pulled(NamedTuple):
    """Messages of a pull.

    Args:
        messages: in order.
        cut: the pull has more, which would be too many bytes after unpacking.
    """

    messages: Sequence[StoredMessage]
    cut: bool


def decode(data: bytes, topic: str, expected: int = 0, open_copy: OpenCopy | None = None) -> Pulled:
    """Return the messages of a pull; of packed ones no more than fit into memory, and at least one.

    Args:
        data: as it came.
        topic: where it was pulled from; for messages that do not say so.
        expected: the first one's offset, for messages that do not say so.
        open_copy: looks into the messages of a group's own topics; None = they are as they are.

    Raises:
        MalformedFrame: their lengths are invalid, so the end of each message is unknown.
    """
    found: list[StoredMessage] = []
    at, end, unpacked, floor = 0, len(data), 0, expected
    while at < end:
        if unpacked >= UNPACKED_AT_ONCE:
            return Pulled(found, cut=True)
        if end - at < _SIZE.size:
            raise MalformedFrame("a pull ends in the middle of a message")
        (size,) = _SIZE.unpack_from(data, at)
        if size < _SIZE.size or at + size > end:
            raise MalformedFrame(f"a message of {size} bytes does not fit into what was pulled")
        try:
            message = _decode(data, at, at + size, open_copy)
        except (struct.error, ValueError, IndexError) as error:
            message = _unreadable(data[at : at + size], topic, expected, error)
        inner = _inner(message)
        # A queue of batches is read from a batch's beginning, also where its first messages are settled.
        found += [message] if inner is None else [part for part in inner if part.offset >= floor]
        unpacked += message.unpacked
        expected = (inner[-1] if inner else message).offset + 1
        at += size
    return Pulled(found, cut=False)


def _decode(data: bytes, start: int, end: int, open_copy: OpenCopy | None) -> StoredMessage:
    if end - start < _HEAD.size:
        raise ValueError("it is too short to be a message")
    _, magic, _, _, flag, offset, _, system, born, stored, attempts, _, length = _HEAD.unpack_from(
        data, start
    )
    if magic not in _MAGICS:
        raise ValueError(f"its layout {magic} is unknown")
    at = start + _HEAD.size
    if system & (_SENDER_6 | _BROKER_6):
        at = start + _START.size + (20 if system & _SENDER_6 else 8)
        (stored,) = _STORED.unpack_from(data, at)
        at += 8 + (20 if system & _BROKER_6 else 8)
        attempts, _, length = _TAIL.unpack_from(data, at)
        at += _TAIL.size
    if length < 0:
        raise ValueError("a body's length is negative")
    body, at = data[at : at + length], at + length
    if magic == _MAGIC_LONG_TOPIC:
        (length,) = _SHORT.unpack_from(data, at)
        at += 2
    else:
        length = data[at]
        at += 1
    topic, at = data[at : at + length], at + length
    (length,) = _SHORT.unpack_from(data, at)
    text, at = data[at + 2 : at + 2 + length], at + 2 + length
    if at > end:
        raise ValueError("a part is longer than the message")
    head = data[start : start + LONGEST_HEAD]
    trouble, packing, unpacked = "", 0, 0
    if system & _COMPRESSED:
        body, trouble = unpack(body, system >> 8 & 7)
        packing, unpacked = (system & PACKING, 0) if trouble else (0, len(body))
    properties, name = from_text(text.decode(errors="replace")), topic.decode()
    if open_copy is not None and name.startswith("%") and (found := open_copy(properties, body)):
        properties, body, packing = found
        if packing:
            body, trouble = unpack(body, packing >> 8 & 7)
            packing, unpacked = (packing, 0) if trouble else (0, len(body))
    return StoredMessage(
        name, body, properties, offset, born, stored, attempts, flag, trouble, packing, unpacked, head
    )


def _inner(outer: StoredMessage) -> list[StoredMessage] | None:
    """Return the messages of a batch; None for a message that is none. A batch that cannot be read is one unreadable message."""
    head = outer.head
    if head is None or outer.trouble or int.from_bytes(head[_SYSTEM_AT : _SYSTEM_AT + 4]) & _BATCH != _BATCH:
        return None
    told = outer.properties.get(_INNER_COUNT, "")
    try:
        parts = list(_parts(outer, head))
        # More would lie at offsets of the messages behind the batch.
        if not parts or (told.isdigit() and len(parts) > int(told)):
            _unlike(len(parts), told)
    except (struct.error, ValueError) as error:
        outer.trouble = f"the batch of messages in it cannot be read: {error}"
        return None
    return parts


def _unlike(found: int, told: str) -> NoReturn:
    raise ValueError(f"it has {found} messages instead of {told or 'some'}")


def _parts(outer: StoredMessage, head: bytes) -> Iterator[StoredMessage]:
    body, at, offset = outer.body, 0, outer.offset
    while at < len(body):
        size, _, _, flag, length = _INNER.unpack_from(body, at)
        begin = at + _INNER.size
        (text_length,) = _SHORT.unpack_from(body, begin + length)
        text_at = begin + length + _SHORT.size
        if length < 0 or size != text_at + text_length - at or at + size > len(body):
            raise ValueError("a part is longer than its message")
        yield StoredMessage(
            outer.topic,
            body[begin : begin + length],
            from_text(body[text_at : text_at + text_length].decode(errors="replace")),
            offset,
            outer.born,
            outer.stored,
            outer.attempts,
            flag,
            # The batch was unpacked once; each message pays for its part.
            unpacked=length if outer.unpacked else 0,
            head=head[:_OFFSET_AT] + offset.to_bytes(8) + head[_OFFSET_AT + 8 :],
        )
        at, offset = at + size, offset + 1


def _unreadable(data: bytes, topic: str, expected: int, error: Exception) -> StoredMessage:
    return StoredMessage(topic, data, {}, expected, 0, 0, 0, 0, f"its layout cannot be read: {error}")


def kind_of(packed: bytes) -> int:
    """Return RocketMQ's number of the way of packing that a body's first bytes show."""
    return _KINDS.get(packed[:4], _ZLIB)


def unpack_flagged(body: bytes, flags: str) -> tuple[bytes, str]:
    """Return a body unpacked as the flags beside it say, which may be anything, and what is wrong with it."""
    system = int(flags) if flags.isascii() and flags.isdigit() else 0
    return unpack(body, system >> 8 & 7) if system & _COMPRESSED else (body, "")


def unpack(body: bytes, kind: int) -> tuple[bytes, str]:
    """Return a packed body unpacked and no trouble, or the body as it is and the reason.

    Args:
        body: as it came.
        kind: RocketMQ's number of the way of packing; older clients leave it 0.
    """
    try:
        if kind in (_ZLIB, _ZLIB_AGAIN):
            inflater = zlib.decompressobj()
            plain = inflater.decompress(body, LARGEST_BODY + 1)
            complete = inflater.eof and len(plain) <= LARGEST_BODY
        elif kind == _LZ4:
            plain, complete = _unpack_lz4(body)
        elif kind == _ZSTD:
            plain, complete = _unpack_zstd(body)
        else:
            return body, f"the way {kind} of packing a body is unknown"
    except ModuleNotFoundError as error:
        return (
            body,
            f"the package {error.name!r} is not installed: pip install 'oncemq[rocketmq]'",
        )
    except Exception as error:  # every library has errors of its own
        return body, f"the body cannot be unpacked: {type(error).__name__}: {error}"
    if not complete:
        return body, f"the body is cut off, or has more than {LARGEST_BODY:,} bytes when unpacked"
    return plain, ""


def _unpack_lz4(body: bytes) -> tuple[bytes, bool]:
    from lz4.frame import LZ4FrameDecompressor  # noqa: PLC0415 - an optional package

    inflater: Any = LZ4FrameDecompressor()
    plain: bytes = inflater.decompress(body, max_length=LARGEST_BODY + 1)
    return plain, inflater.eof and len(plain) <= LARGEST_BODY


def _unpack_zstd(body: bytes) -> tuple[bytes, bool]:
    from zstandard import ZstdDecompressor  # noqa: PLC0415 - an optional package

    inflater = ZstdDecompressor(max_window_size=_LARGEST_WINDOW).stream_reader(body)
    plain = bytearray()
    # In parts: a read takes the memory of all that it is asked for, however little comes.
    while len(plain) <= LARGEST_BODY and (part := inflater.read(_PART)):
        plain += part
    return bytes(plain), len(plain) <= LARGEST_BODY
