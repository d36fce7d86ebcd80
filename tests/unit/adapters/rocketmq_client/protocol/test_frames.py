"""Frames of the remoting protocol: what goes out comes back, and hostile bytes end as a clear error."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oncemq_adapters.rocketmq_client.errors import MalformedFrame
from oncemq_adapters.rocketmq_client.protocol.frames import (
    LARGEST,
    FrameReader,
    encode,
    loose_json,
)

TEXTS = some.text(max_size=20)


def binary(code: int, opaque: int, flag: int, remark: bytes, fields: bytes, body: bytes = b"") -> bytes:
    """Return a frame with RocketMQ's binary header."""
    head = struct.pack(">hbhiii", code, 0, 479, opaque, flag, len(remark)) + remark
    head += struct.pack(">i", len(fields)) + fields
    return struct.pack(">iI", 4 + len(head) + len(body), 1 << 24 | len(head)) + head + body


@given(some.integers(0, 2**15), some.integers(0, 2**31 - 1), some.dictionaries(TEXTS, TEXTS), some.binary())
def test_a_frame_comes_back_as_it_went(code: int, opaque: int, fields: dict[str, str], body: bytes) -> None:
    """Code, id, fields and body survive, whatever they hold."""
    (frame,) = FrameReader().feed(encode(code, opaque, fields, body))
    assert (frame.code, frame.opaque, frame.fields, frame.body) == (code, opaque, fields, body)


@given(some.integers(1, 40))
def test_frames_may_come_in_pieces(piece: int) -> None:
    """However the bytes are cut, each frame comes once and in order."""
    data = b"".join(encode(1, number, {"a": "b"}, b"body") for number in range(5))
    reader = FrameReader()
    found = [
        frame.opaque for at in range(0, len(data), piece) for frame in reader.feed(data[at : at + piece])
    ]
    assert found == [0, 1, 2, 3, 4]


def test_binary_headers_are_understood() -> None:
    """A peer that is set to RocketMQ's own serialization is read like one that writes JSON."""
    fields = struct.pack(">h", 6) + b"offset" + struct.pack(">i", 2) + b"42"
    (frame,) = FrameReader().feed(binary(22, 7, 1, "größe".encode(), fields, b"x"))
    assert frame == (22, 7, 1, 479, "größe", {"offset": "42"}, b"x")


@given(some.binary(max_size=300))
def test_noise_is_no_frame(data: bytes) -> None:
    """Random bytes are either waited upon or refused; nothing else is raised."""
    reader = FrameReader()
    try:
        list(reader.feed(data))
    except MalformedFrame:
        return


@given(some.binary(max_size=120), some.sampled_from([0, 1, 2, 255]), some.integers(0, 130))
def test_hostile_headers_are_refused(header: bytes, kind: int, said: int) -> None:
    """A header that is garbage inside a frame of sound length ends as MalformedFrame."""
    data = struct.pack(">iI", 4 + len(header), kind << 24 | said) + header
    try:
        frames = list(FrameReader().feed(data))
    except MalformedFrame:
        return
    assert all(isinstance(frame.fields, dict) for frame in frames)


@pytest.mark.parametrize("size", [-1, 0, 3, LARGEST + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_at_once(size: int) -> None:
    """No memory is kept, and nothing waited for, because of a length that is noise."""
    with pytest.raises(MalformedFrame, match="cannot be"):
        list(FrameReader().feed(struct.pack(">iI", size, 0)))


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"code":true,"opaque":1}',
        b'{"code":1}',
        b'{"code":1,"opaque":"1"}',
        b'{"code":1,"opaque":1,"extFields":[1]}',
        b"null",
        b"\xff\xfe",
    ],
)
def test_json_that_is_no_header_is_refused(header: bytes) -> None:
    """Deep nesting, missing or wrong parts and bytes that are no text are all one error."""
    with pytest.raises(MalformedFrame):
        list(FrameReader().feed(struct.pack(">iI", 4 + len(header), len(header)) + header))


def test_values_of_fields_become_text() -> None:
    """Numbers and nulls, which some peers write, are read as text."""
    header = json.dumps({"code": 0, "opaque": 1, "extFields": {"a": 1, "b": None}}).encode()
    (frame,) = FrameReader().feed(struct.pack(">iI", 4 + len(header), len(header)) + header)
    assert frame.fields == {"a": "1", "b": ""}


def test_bare_numbers_as_keys_are_read() -> None:
    """RocketMQ's routes name brokers by numbers without quotes."""
    assert loose_json(b'{0:"127.0.0.1:10911",1:"b"}') == {"0": "127.0.0.1:10911", "1": "b"}


@given(some.binary(max_size=100))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    """Whatever comes, it is read or refused."""
    try:
        loose_json(body)
    except MalformedFrame:
        return
