"""One frame of the remoting protocol, in and out: a length, a header in JSON or binary form, a body.

What comes in is checked before it is believed: a peer that is no RocketMQ, or a line that garbles, ends as
`MalformedFrame` and never as a wait for bytes that do not come, or as memory for a length that was noise.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from oncemq_adapters.rocketmq_client.codes import OUR_VERSION
from oncemq_adapters.rocketmq_client.errors import MalformedFrame

LARGEST = 64 * 1024 * 1024
"""Bytes of a frame that comes in; a pull brings 256 KiB unless one message alone is larger."""

_HEAD = struct.Struct(">iI")
_BINARY = struct.Struct(">hbhiii")
_as_json = json.JSONEncoder(separators=(",", ":")).encode
_LONG, _SHORT = struct.Struct(">i"), struct.Struct(">h")
_JSON_KIND, _BINARY_KIND = 0, 1
_BARE_KEY = re.compile(r"([{,])\s*(-?\d+)\s*:")
_OBJECT_AS_KEY = re.compile(r"([{,])\s*(\{[^{}]*\})\s*:")


class Frame(NamedTuple):
    """One request or answer.

    Args:
        code: what is asked for, or what the answer is.
        opaque: by which an answer finds its request.
        flag: bit 0 = an answer, bit 1 = no answer is wanted.
        version: the peer's, in the protocol's own count.
        remark: an error's text.
        fields: text to text.
        body: bytes.
    """

    code: int
    opaque: int
    flag: int
    version: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


def encode(code: int, opaque: int, fields: Mapping[str, str], body: bytes = b"", flag: int = 0) -> bytes:
    """Return a frame as it is sent."""
    header = {
        "code": code,
        "language": "PYTHON",
        "version": OUR_VERSION,
        "opaque": opaque,
        "flag": flag,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": fields,
    }
    head = _as_json(header).encode()
    return _HEAD.pack(4 + len(head) + len(body), len(head)) + head + body


class FrameReader:
    """Makes frames of bytes as they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take more bytes and yield every frame that they complete.

        Raises:
            MalformedFrame: they are no frames.
        """
        buffer = self._buffer
        buffer += data
        at, have = 0, len(buffer)
        try:
            while have - at >= _HEAD.size:
                size, mixed = _HEAD.unpack_from(buffer, at)
                head_size = mixed & 0xFFFFFF
                if not 4 <= size <= LARGEST or head_size > size - 4:
                    raise MalformedFrame(f"a frame of {size} bytes with a header of {head_size} cannot be")
                end = at + 4 + size
                if have < end:
                    break
                body_at = at + _HEAD.size + head_size
                header = bytes(buffer[at + _HEAD.size : body_at])
                yield _decode(mixed >> 24, header, bytes(buffer[body_at:end]))
                at = end
        finally:
            del buffer[:at]


def loose_json(body: bytes) -> Any:
    """Return what a JSON body says; RocketMQ writes numbers and objects as keys, which become texts here.

    Raises:
        MalformedFrame: it says nothing.
    """
    try:
        text = body.decode()
        try:
            return json.loads(text)
        except ValueError:
            plain = _OBJECT_AS_KEY.sub(lambda found: f"{found[1]}{json.dumps(found[2])}:", text)
            return json.loads(_BARE_KEY.sub(r'\1"\2":', plain))
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"an answer of RocketMQ is not JSON: {type(error).__name__}") from error


def _decode(kind: int, header: bytes, body: bytes) -> Frame:
    try:
        if kind == _JSON_KIND:
            return _from_json(header, body)
        if kind == _BINARY_KIND:
            return _from_binary(header, body)
    except (ValueError, TypeError, LookupError, RecursionError, struct.error, AttributeError) as error:
        raise MalformedFrame(f"a frame's header cannot be read: {type(error).__name__}: {error}") from error
    raise MalformedFrame(f"a frame's header is of kind {kind}, which is unknown")


def _from_json(header: bytes, body: bytes) -> Frame:
    found = json.loads(header)
    fields = found.get("extFields") or {}
    if type(fields) is not dict:
        raise MalformedFrame("a frame's fields are none")
    for name, value in fields.items():
        if type(value) is not str:
            fields[name] = "" if value is None else str(value)
    numbers = found["code"], found["opaque"], found.get("flag", 0), found.get("version", 0)
    if not all(type(number) is int for number in numbers):
        raise MalformedFrame("a frame's code, id, flag or version is no number")
    return Frame(*numbers, str(found.get("remark") or ""), fields, body)


def _from_binary(header: bytes, body: bytes) -> Frame:
    code, _, version, opaque, flag, size = _BINARY.unpack_from(header)
    remark, at = _text(header, _BINARY.size, size)
    (size,) = _LONG.unpack_from(header, at)
    at += _LONG.size
    if size < 0 or at + size != len(header):
        raise MalformedFrame("a frame's fields do not end where its header does")
    fields = {}
    while at < len(header):
        (size,) = _SHORT.unpack_from(header, at)
        name, at = _text(header, at + _SHORT.size, size)
        (size,) = _LONG.unpack_from(header, at)
        fields[name], at = _text(header, at + _LONG.size, size)
    return Frame(code, opaque, flag, version, remark, fields, body)


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise MalformedFrame("a text in a frame's header is longer than the header")
    return data[at:end].decode(), end
