"""What our connection reads is what pika reads, however the bytes come; pika itself is asked, byte for byte."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, SelectConnection
from pika.callback import CallbackManager
from pika.channel import Channel
from pika.exceptions import InvalidFrameError
from pika.frame import Body, Header, Heartbeat, Method
from pika.spec import Basic

from oncemq_adapters.rabbitmq.connection.pika_connection import WRITTEN_AT_ONCE, Connection, whole_delivery

PROPERTIES = BasicProperties(
    content_type="application/json",
    headers={"oncemq-key": "k-1", "deep": {"list": [1, "two", None, True]}},
    delivery_mode=2,
    message_id="m-1",
    timestamp=1_763_800_000,
)
Seen = tuple[int, str, int, bool, str, str, dict[str, Any], bytes]


def delivery(
    body: bytes,
    *,
    channel: int = 1,
    tag: int = 1,
    consumer: str = "points",
    redelivered: bool = False,
    properties: BasicProperties = PROPERTIES,
    pieces: int = 1,
) -> bytes:
    """Return a delivery's frames, with its body in so many of them."""
    method = Basic.Deliver(consumer, tag, redelivered, "shop", "orders.paid")
    step = max(1, -(-len(body) // pieces))
    frames = [
        Method(channel, method),
        Header(channel, len(body), properties),
        *(Body(channel, body[at : at + step]) for at in range(0, len(body), step)),
    ]
    return b"".join(frame.marshal() for frame in frames)


def shown(properties: BasicProperties) -> dict[str, Any]:
    """Return what pika says of properties, too; ours keep besides what they came as."""
    return {name: value for name, value in vars(properties).items() if name not in ("raw", "fault")}


class Reading:
    """A connection that is not connected, with two channels, and all that their consumers were given."""

    def __init__(self, kind: type[SelectConnection]) -> None:
        self.seen: list[Seen] = []
        self.connection = kind.__new__(kind)
        vars(self.connection).update(
            _frame_buffer=b"",
            bytes_received=0,
            frames_received=0,
            callbacks=CallbackManager(),
            _heartbeat_checker=None,
            _transport=None,
            params=None,
            connection_state=SelectConnection.CONNECTION_OPEN,
            _channels={},
        )
        for number in (1, 2):
            channel = Channel(self.connection, number, lambda _: None)
            channel._consumers["points"] = self._note
            self.connection._channels[number] = channel

    def _note(self, channel: Channel, method: Any, properties: Any, body: bytes) -> None:
        told = (channel.channel_number, method.consumer_tag, method.delivery_tag, method.redelivered)
        self.seen.append((*told, method.exchange, method.routing_key, shown(properties), body))

    def read(self, parts: Iterable[bytes]) -> Sequence[Any]:
        """Return what was seen, and what pika counts and keeps."""
        for part in parts:
            self.connection._on_data_available(part)
        kept = self.connection
        return self.seen, kept.bytes_received, kept.frames_received, kept._frame_buffer


def cut(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    """Yield the data in pieces."""
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    yield from (data[start:end] for start, end in pairwise(bounds))


MESSAGES = st.builds(
    delivery,
    st.binary(max_size=40),
    channel=st.sampled_from([1, 2]),
    tag=st.integers(1, 2**63),
    consumer=st.sampled_from(["points", "points", "points", "unknown"]),
    redelivered=st.booleans(),
    properties=st.sampled_from([PROPERTIES, BasicProperties()]),
    pieces=st.sampled_from([1, 1, 2, 3]),
)
OTHERS = st.sampled_from([Heartbeat().marshal(), Method(1, Basic.Ack(3, multiple=True)).marshal()])


@given(
    st.lists(st.one_of(MESSAGES, MESSAGES, OTHERS), max_size=12), st.lists(st.integers(0, 10**6), max_size=12)
)
def test_it_reads_what_pika_reads(frames: list[bytes], places: list[int]) -> None:
    """Deliveries, their order, what else comes between them, and what is left of the bytes, wherever these are cut."""
    parts = list(cut(b"".join(frames), places))
    assert Reading(Connection).read(parts) == Reading(SelectConnection).read(parts)


def test_deliveries_that_have_come_whole_need_no_frames_of_pika(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all this would be for nothing."""
    reading = Reading(Connection)
    monkeypatch.setattr(Connection, "_read_frame", lambda _: pytest.fail("pika was asked"))
    seen, *_ = reading.read([b"".join(delivery(b"x", tag=tag) for tag in (1, 2, 3)) + delivery(b"", tag=4)])
    assert [call[2] for call in seen] == [1, 2, 3, 4]


def test_the_end_of_what_came_together_is_told_once() -> None:
    """Consumers that ask while deliveries are read are called after the last of them, and not for the next bytes."""
    reading, told = Reading(Connection), []

    def note(_channel: Channel, method: Any, _properties: Any, _body: bytes) -> None:
        told.append(method.delivery_tag)
        if method.delivery_tag == 1:
            reading.connection.after_reading(lambda: told.append("end"))

    reading.connection._channels[1]._consumers["points"] = note
    reading.read([delivery(b"x", tag=1) + delivery(b"x", tag=2, pieces=1), delivery(b"x", tag=3)])
    assert told == [1, 2, "end", 3]


def test_what_came_before_another_frame_is_ended_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a channel could be closed, or its consumer cancelled, before what it had delivered is handed over."""
    reading, told = Reading(Connection), []
    reading.connection._channels[1]._consumers["points"] = lambda *_: reading.connection.after_reading(
        lambda: told.append("end")
    )
    monkeypatch.setattr(Connection, "_process_frame", lambda *_: told.append("frame"))
    reading.read([delivery(b"x") + Method(1, Basic.Ack(3, multiple=True)).marshal() + delivery(b"x", tag=2)])
    assert told == ["end", "frame", "end"]


def test_the_end_is_told_also_where_reading_fails() -> None:
    """What came before nonsense is not lost with it."""
    reading, told = Reading(Connection), []
    reading.connection._channels[1]._consumers["points"] = lambda *_: reading.connection.after_reading(
        lambda: told.append("end")
    )
    with pytest.raises(InvalidFrameError):
        reading.read([delivery(b"x") + b"\x01\x00\x01\x00\x00\x00\x01ab"])
    assert told == ["end"]


def test_a_cancelled_consumer_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way when it was cancelled is pika's to reject."""
    reading, rejected = Reading(Connection), []
    channel = reading.connection._channels[1]
    channel._cancelled.add("points")
    monkeypatch.setattr(Channel, "is_open", True)
    monkeypatch.setattr(channel, "basic_reject", rejected.append)
    seen, *_ = reading.read([delivery(b"x", tag=7)])
    assert (seen, rejected) == ([], [7])


METHOD_AND_HEAD = len(Method(1, Basic.Deliver("points", 1, False, "shop", "orders.paid")).marshal()) + 7 + 12
PLACES_OF_PROPERTIES = range(METHOD_AND_HEAD, METHOD_AND_HEAD + len(b"".join(PROPERTIES.encode())))


def is_refused_by_pika(data: bytes) -> bool:
    """Return whether pika ends the connection for these bytes."""
    try:
        Reading(SelectConnection).read([data])
    except Exception:
        return True
    return False


@pytest.mark.parametrize("place", range(len(delivery(b"xyz"))))
def test_what_is_not_as_it_should_be_is_pikas(place: int) -> None:
    """A byte is wrong: the connection says what pika says, also where that is an error; but properties are one message's."""
    data = bytearray(delivery(b"xyz"))
    data[place] ^= 0x01
    if place in PLACES_OF_PROPERTIES and is_refused_by_pika(bytes(data)):
        seen, *_ = Reading(Connection).read([bytes(data), delivery(b"next")])
        assert [told[-1] for told in seen] == [b"xyz", b"next"]
        return
    outcomes = []
    for kind in (Connection, SelectConnection):
        try:
            outcomes.append(repr(Reading(kind).read([bytes(data), delivery(b"next")])))
        except Exception as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == outcomes[1]


@given(st.binary(max_size=80), st.integers(0, 90))
def test_any_bytes_are_no_delivery_or_one(data: bytes, at: int) -> None:
    """Garbage behind a good beginning is at worst not whole."""
    good = delivery(b"x")
    found = whole_delivery(good + data, 0)
    assert found is not None
    assert found.end == len(good)
    other = whole_delivery(data, at)
    assert other is None or at < other.end <= len(data)


def test_frames_of_many_messages_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collected frames are written in order when there are enough of them, and at the end; later ones at once."""
    written: list[bytes] = []
    monkeypatch.setattr(SelectConnection, "_adapter_emit_data", lambda _, data: written.append(data))
    connection = Reading(Connection).connection
    with connection.written_together():
        for part in (b"a", b"b", b"c" * WRITTEN_AT_ONCE, b"d", b"e"):
            connection._adapter_emit_data(part)
    connection._adapter_emit_data(b"f")
    assert written == [b"ab" + b"c" * WRITTEN_AT_ONCE, b"de", b"f"]
