"""Stored messages: every layout that brokers use, and none that stops the messages behind it."""

import struct
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as some

from oncemq_adapters.rocketmq.metadata import RocketMQMetadata
from oncemq_adapters.rocketmq_client.errors import MalformedFrame
from oncemq_adapters.rocketmq_client.protocol.message_codec import (
    LARGEST_BODY,
    UNPACKED_AT_ONCE,
    decode,
    unpack,
)
from support.brokers.stored import LONG_TOPIC, SHORT_TOPIC, stored


@pytest.mark.parametrize("magic", [SHORT_TOPIC, LONG_TOPIC])
@pytest.mark.parametrize("system", [0, 16, 32, 48])
def test_every_layout_is_read(magic: int, system: int) -> None:
    """Long topics and IPv6 senders and brokers move the parts; each is found."""
    (message,) = decode(
        stored(b"body", magic=magic, system=system, offset=8, attempts=3, flag=5), "t"
    ).messages
    assert (message.topic, message.body, message.properties) == ("topic", b"body", {"KEYS": "k"})
    assert (message.offset, message.born, message.stored, message.attempts, message.flag) == (
        8,
        1000,
        2000,
        3,
        5,
    )
    assert message.trouble == ""


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (0, zlib.compress(b"plain")),
        (3, zlib.compress(b"plain")),
        (1, lz4.frame.compress(b"plain")),
        (2, zstandard.compress(b"plain")),
    ],
)
def test_packed_bodies_are_unpacked(kind: int, packed: bytes) -> None:
    """Zlib as older clients and as newer ones mark it, LZ4 and ZSTD."""
    (message,) = decode(stored(packed, system=1 | kind << 8), "t").messages
    assert (message.body, message.trouble) == (b"plain", "")


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 5])
@given(packed=some.binary(max_size=60))
def test_what_cannot_be_unpacked_stays_as_it_is(kind: int, packed: bytes) -> None:
    """The original bytes are kept for the dead letter, with the reason."""
    body, trouble = unpack(packed, kind)
    assert not trouble or body == packed


def test_a_small_body_does_not_become_a_huge_one() -> None:
    """Unpacking stops at its limit; zlib makes a thousand times as much of a few bytes."""
    bomb = zlib.compress(bytes(LARGEST_BODY + 1), 9)
    body, trouble = unpack(bomb, 3)
    assert body == bomb
    assert "more than" in trouble


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_a_body_of_exactly_the_limit_is_read(kind: int) -> None:
    """One byte more is trouble."""
    pack = {1: lz4.frame.compress, 2: zstandard.compress, 3: zlib.compress}[kind]
    assert unpack(pack(bytes(LARGEST_BODY)), kind) == (bytes(LARGEST_BODY), "")
    assert unpack(pack(bytes(LARGEST_BODY + 1)), kind)[1]


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_a_pull_of_bombs_takes_little_memory(kind: int) -> None:
    """Thirty-two bodies that would each be 64 MB are unpacked one after the other, each up to its limit, and let go."""
    pack = {1: lz4.frame.compress, 2: zstandard.compress, 3: zlib.compress}[kind]
    bomb = pack(bytes(64 * 1024 * 1024))
    pulled = stored(bomb, system=1 | kind << 8) * 32
    tracemalloc.start()
    try:
        found = decode(pulled, "t").messages
        assert tracemalloc.get_traced_memory()[1] < len(pulled) * 2 + 32 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert {each.body for each in found} == {bomb}
    assert all(each.trouble for each in found)


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_a_pull_is_cut_where_enough_is_unpacked(kind: int) -> None:
    """Each body is within its limit, thirty-two are not: the rest is pulled again when there is room."""
    pack = {1: lz4.frame.compress, 2: zstandard.compress, 3: zlib.compress}[kind]
    pulled = stored(pack(bytes(LARGEST_BODY)), system=1 | kind << 8) * 32
    tracemalloc.start()
    try:
        found, cut = decode(pulled, "t")
        assert tracemalloc.get_traced_memory()[1] < UNPACKED_AT_ONCE + 5 * LARGEST_BODY
    finally:
        tracemalloc.stop()
    assert cut
    assert [message.unpacked for message in found] == [LARGEST_BODY] * (UNPACKED_AT_ONCE // LARGEST_BODY)


def test_an_unknown_layout_holds_up_no_other() -> None:
    """It is delivered as it is, with a reason, between its neighbours; its offset is counted on."""
    odd = stored(b"odd", magic=12345, offset=8)
    first, trouble, last = decode(stored(offset=7) + odd + stored(offset=9), "topic").messages
    assert (first.offset, trouble.offset, last.offset) == (7, 8, 9)
    assert (trouble.body, trouble.topic) == (odd, "topic")
    assert "layout 12345 is unknown" in trouble.trouble
    assert not first.trouble + last.trouble


@given(some.integers(4, 130))
def test_a_message_that_is_cut_off_inside_is_told(cut: int) -> None:
    """Parts that reach beyond the message's own length never read into the next one."""
    whole = stored(b"body" * 10)
    size = min(cut, len(whole) - 1)
    damaged = struct.pack(">i", size) + whole[4:size]
    first, last = decode(damaged + stored(offset=9), "t", expected=7).messages
    assert first.trouble
    assert last.body == b"x"


@given(some.binary(max_size=200))
def test_noise_ends_as_an_error_or_as_trouble(data: bytes) -> None:
    """Nothing but MalformedFrame is raised, and nothing hangs."""
    try:
        decode(data, "t")
    except MalformedFrame:
        return


@given(some.integers(0, 89), some.integers(0, 255))
def test_a_flipped_byte_crashes_nothing(at: int, value: int) -> None:
    """Every byte of the fixed part may be anything."""
    data = bytearray(stored(b"body"))
    data[at % len(data)] = value
    try:
        decode(bytes(data), "t")
    except MalformedFrame:
        return


def batch(*bodies: bytes, count: int | None = None, packed: bool = False) -> bytes:
    """Return a stored batch as a topic of `queue.type=BatchCQ` keeps it, at offset 8."""
    body = b""
    for number, inner in enumerate(bodies):
        properties = f"UNIQ_KEY\x01id-{number}\x02".encode()
        size = 20 + len(inner) + 2 + len(properties)
        body += struct.pack(">iiiii", size, 0, 0, number, len(inner)) + inner
        body += struct.pack(">H", len(properties)) + properties
    told = f"INNER_NUM\x01{len(bodies) if count is None else count}\x02"
    system = 64 | 128 | (0x301 if packed else 0)
    return stored(zlib.compress(body) if packed else body, system=system, offset=8, text=told)


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_is_its_messages(packed: bool) -> None:
    """Each with body, properties, flag and the offset that it has in the queue; what follows keeps its own."""
    data = batch(b"a", b"", b"ccc", packed=packed) + stored(b"next", offset=11)
    messages = decode(data, "t", 8).messages
    assert [(message.offset, message.body) for message in messages] == [
        (8, b"a"),
        (9, b""),
        (10, b"ccc"),
        (11, b"next"),
    ]
    assert [message.properties["UNIQ_KEY"] for message in messages[:3]] == ["id-0", "id-1", "id-2"]
    assert [message.flag for message in messages[:3]] == [0, 1, 2]
    found = RocketMQMetadata.read(messages[2].head)
    assert found is not None
    assert found.queue_offset == 10


def test_a_batch_that_is_read_from_its_middle_gives_the_rest() -> None:
    """Brokers send a batch whole: what lies before the offset that was asked for is settled."""
    messages = decode(batch(b"a", b"b", b"c"), "t", 9).messages
    assert [(message.offset, message.body) for message in messages] == [(9, b"b"), (10, b"c")]


@pytest.mark.parametrize(
    "data",
    [
        stored(b"\x00\x00\x00\x40", system=192, offset=8),
        stored(b"", system=192, offset=8),
        batch(b"a", b"b", count=1),
        stored(struct.pack(">iiiii", 21, 0, 0, 0, -1) + b"\x00", system=192, offset=8),
    ],
)
def test_a_batch_that_cannot_be_read_is_one_unreadable_message(data: bytes) -> None:
    """Cut, empty, or with more messages than it takes offsets: it becomes a dead letter whole, and nothing else is lost."""
    messages = decode(data + stored(b"next", offset=9), "t", 8).messages
    assert [(message.offset, bool(message.trouble)) for message in messages] == [(8, True), (9, False)]
