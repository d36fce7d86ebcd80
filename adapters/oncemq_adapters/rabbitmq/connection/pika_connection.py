"""pika's connection, which reads whole deliveries without an object for each frame, and writes many frames at once.

A delivery is three frames. pika cuts each off its buffer, which copies the rest, and notifies all possible waiters;
without that a process handles about a tenth more messages. pika handles everything else: other methods, large bodies, incomplete frames, errors.

This is the one module that uses private parts of pika. Where a release has none of them, pika's public way is taken:
deliveries are read and messages written frame by frame, and a message with unreadable properties ends the connection.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from struct import Struct
from typing import Any, NamedTuple

from pika import BasicProperties, BlockingConnection, SelectConnection
from pika.exceptions import StreamLostError
from pika.frame import Header
from pika.spec import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, Basic

from oncemq_adapters.rabbitmq.messages.raw_properties import RawProperties

RECEIVED_AT_ONCE = 65_536
"""Bytes; pika asks for 4,096, and gives up the interpreter for each time."""

WRITTEN_AT_ONCE = 65_536
"""Bytes of frames that are collected before they are written; pika writes each frame by itself, three a message."""

READING_PARTS = (
    "_frame_buffer",
    "_read_frame",
    "_trim_frame_buffer",
    "_process_frame",
    "_channels",
    "bytes_received",
    "frames_received",
)
"""The attributes that a pika connection needs for deliveries to be read whole."""
RECEIVING_PART = "_MAX_RECV_BYTES"
"""Of pika's transport: how much it asks for at once."""
CUTTING_PART = "_terminate_stream"
"""Of pika's connection: ends it without the peer."""
SOCKET_PART = "_sock"
"""Of pika's transport."""
CONSUMERS_PART = "_consumers"
"""Of pika's channel: the consumers that it cancels before it closes."""
BLOCKING_PART = "_impl_class"
"""The argument of pika's `BlockingConnection` for the connection that it uses inside."""

_METHOD = Struct(">BHLL")
_HEADER = Struct(">BHLHHQ")
_BODY = Struct(">BHL")
_TAG = Struct(">QB")
_HEAD, _AROUND = 7, 8
"""Bytes before a frame's payload, and around it."""

_PROPERTIES = _HEADER.size
_LEAST = _METHOD.size + 1

Consumer = Callable[[Any, Any, Any, bytes], None]


class Whole(NamedTuple):
    """A delivery in a buffer.

    Args:
        end: where what follows begins.
        frames: of how many it consists.
        channel: its number.
        method: pika's `Basic.Deliver`.
        properties: pika's.
        body: the bytes.
    """

    end: int
    frames: int
    channel: int
    method: Any
    properties: Any
    body: bytes


def whole_delivery(data: bytes, at: int) -> Whole | None:
    """Return the delivery that lies in `data` from `at` on; None if there is none, or it is not whole and simple."""
    found = _bounds(data, at)
    if found is None:
        return None
    channel, header, body, end = found
    raw = data[header + _PROPERTIES : body - 1]
    try:
        deliver = _deliver(data, at + _METHOD.size, header - 1)
        properties = BasicProperties()
        properties.decode(raw)
        properties.raw = raw
    except Exception:
        # The reader of single frames comes to the same and says what is wrong.
        return None
    if end == body:
        return Whole(end, 2, channel, deliver, properties, b"")
    return Whole(end, 3, channel, deliver, properties, data[body + _HEAD : end - 1])


def _bounds(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return the channel, and where header, body and what follows begin; without a body these two are the same."""
    size = len(data)
    if at + _LEAST > size:
        return None
    kind, channel, length, method = _METHOD.unpack_from(data, at)
    header = at + _AROUND + length
    if kind != FRAME_METHOD or method != Basic.Deliver.INDEX or header + _PROPERTIES > size:
        return None
    head_kind, head_channel, length, of, _, body_size = _HEADER.unpack_from(data, header)
    body = header + _AROUND + length
    end = body + _AROUND + body_size if body_size else body
    if (head_kind, head_channel, of) != (FRAME_HEADER, channel, BasicProperties.INDEX) or end > size:
        return None
    ends = data[header - 1] == data[body - 1] == data[end - 1] == FRAME_END
    simple = not body_size or _BODY.unpack_from(data, body) == (FRAME_BODY, channel, body_size)
    return (channel, header, body, end) if ends and simple else None


def _deliver(data: bytes, at: int, end: int) -> Any:
    consumer_tag, at = _short_text(data, at)
    delivery_tag, bits = _TAG.unpack_from(data, at)
    exchange, at = _short_text(data, at + _TAG.size)
    routing_key, at = _short_text(data, at)
    if at != end:
        raise ValueError("the frame ends elsewhere")
    return Basic.Deliver(consumer_tag, delivery_tag, bool(bits & 1), exchange, routing_key)


def _short_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


class TolerantConnection(SelectConnection):  # type: ignore[misc]
    """Reads every header frame that is a frame, whatever properties it holds: what is wrong in there is one message's."""

    _frame_buffer: bytes = b""

    def _read_frame(self) -> Any:
        return _header_frame(self._frame_buffer) or super()._read_frame()


def blocking_connection(parameters: Any) -> BlockingConnection:
    """Return a connection for the calling thread that reads what `TolerantConnection` does, where pika lets it.

    Raises:
        pika.exceptions.AMQPError: as pika's own.
    """
    if BLOCKING_PART in signature(BlockingConnection.__init__).parameters:
        return BlockingConnection(parameters, **{BLOCKING_PART: TolerantConnection})
    return BlockingConnection(parameters)


def keep_consumers(channel: Any) -> None:
    """Let a channel, or its connection, close without a cancel of its consumers first; nothing is delivered to them any more.

    pika cancels them. A quorum queue with a single active consumer then lets the next one begin at once, with what follows
    the messages that were not settled; these come back only when the channel is closed. Without the part it stays so.
    """
    consumers = getattr(channel, CONSUMERS_PART, None)
    if isinstance(consumers, dict):
        consumers.clear()


def _header_frame(data: bytes) -> tuple[int, Any] | None:
    """Return the end and the header frame that `data` begins with; None if that is something else, or not whole."""
    if len(data) < _HEADER.size or data[0] != FRAME_HEADER:
        return None
    _, channel, length, of, _, body_size = _HEADER.unpack_from(data)
    end = _AROUND + length
    if of != BasicProperties.INDEX or end > len(data) or data[end - 1] != FRAME_END:
        return None
    return end, Header(channel, body_size, RawProperties(data[_PROPERTIES : end - 1]))


class Connection(TolerantConnection):
    """What begins with an underscore and is not defined here is pika's own, of 1.3.2 and later."""

    _waiting_for_end: Sequence[Callable[[], None]] = ()
    _reading = False
    _unwritten: list[bytes] | None = None
    _unwritten_bytes = 0

    def after_reading(self, call: Callable[[], None]) -> None:
        """Call this once when all deliveries are read that have come together, and before anything else that came.

        Where pika reads them itself that is at once: each comes alone. For callbacks of deliveries only.
        """
        if self._reading:
            self._waiting_for_end = [*self._waiting_for_end, call]
        else:
            call()

    @contextmanager
    def written_together(self) -> Iterator[None]:
        """Collect the frames that are sent in the block, and write them together at its end.

        Each write is a call of the system, and took two thirds of the time of publishing many messages.
        """
        self._unwritten = []
        try:
            yield
        finally:
            # Nothing is collected any more, whatever becomes of the write: a heartbeat must not wait for the next block.
            collected, self._unwritten, self._unwritten_bytes = self._unwritten, None, 0
            if collected:
                super()._adapter_emit_data(b"".join(collected))

    def cut(self, why: str) -> bool:
        """End the connection without waiting for the peer; False if pika cannot: it has been asked to close, and may wait."""
        end = getattr(self, CUTTING_PART, None)
        if end is None:
            if self.is_open:
                self.close()
            return False
        end(StreamLostError(why))
        return True

    def descriptors(self) -> Sequence[int]:
        """Return the descriptor of the socket; none while there is no connection, or where pika does not show it."""
        found = getattr(getattr(self, "_transport", None), SOCKET_PART, None)
        return () if found is None else (found.fileno(),)

    def _has_pending_callbacks(self, value: Any) -> Any:
        """Skip the search for callbacks that wait for a delivery: there can be none, and the search costs 2 µs."""
        return type(value.method) is not Basic.Deliver and super()._has_pending_callbacks(value)

    def _proto_connection_made(self, transport: Any) -> None:
        if hasattr(transport, RECEIVING_PART):
            setattr(transport, RECEIVING_PART, RECEIVED_AT_ONCE)
        super()._proto_connection_made(transport)

    def _adapter_emit_data(self, data: bytes) -> None:
        if self._unwritten is None:
            super()._adapter_emit_data(data)
            return
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self._unwritten_bytes >= WRITTEN_AT_ONCE:
            self._write_collected()

    def _write_collected(self) -> None:
        if self._unwritten:
            data, self._unwritten, self._unwritten_bytes = b"".join(self._unwritten), [], 0
            super()._adapter_emit_data(data)

    def _on_data_available(self, data_in: bytes) -> None:
        if not all(hasattr(self, part) for part in READING_PARTS):
            super()._on_data_available(data_in)
            return
        self._reading = True
        try:
            self._take_in(data_in)
        finally:
            self._reading = False
            self._end_of_deliveries()

    def _end_of_deliveries(self) -> None:
        calls, self._waiting_for_end = self._waiting_for_end, ()
        for call in calls:
            call()

    def _take_in(self, data_in: bytes) -> None:
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        while data:
            self._frame_buffer = data[self._deliver_whole(data) :]
            if not self._frame_buffer:
                return
            consumed, frame = self._read_frame()
            if not frame:
                return
            self._end_of_deliveries()
            self._trim_frame_buffer(consumed)
            self._process_frame(frame)
            data = self._frame_buffer

    def _deliver_whole(self, data: bytes) -> int:
        """Hand over the deliveries at the beginning of `data`; return where what is not one begins."""
        at = 0
        while (found := whole_delivery(data, at)) is not None:
            consumer = self._consumer_of(found)
            if consumer is None:
                break
            self.bytes_received += found.end - at
            self.frames_received += found.frames
            at = found.end
            consumer(self._channels[found.channel], found.method, found.properties, found.body)
        return at

    def _consumer_of(self, found: Whole) -> Consumer | None:
        """Return whom pika would call; None if it has to look closer."""
        channel, tag = self._channels.get(found.channel), found.method.consumer_tag
        try:
            if channel._content_assembler._method_frame is not None or tag in channel._cancelled:
                return None
            consumer: Consumer | None = channel._consumers.get(tag)
        except AttributeError:  # no such channel, or one of a pika without these parts
            return None
        return consumer
