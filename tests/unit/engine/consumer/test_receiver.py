"""Received messages wait for their run without what was unpacked of them."""

import gzip
import tracemalloc

from oncemq.engine.base.items import make_item
from oncemq.engine.consumer.receiver import Intake
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Delivery, Message
from oncemq.message.headers import CONTENT_ENCODING
from oncemq.message.reader import Reader

READER = Reader("shop", "orders", "points", key="body.id", version=None, identity=(), decoder=make_decoder())


def delivery(size: int) -> Delivery:
    """Return a delivery whose compressed body has so many bytes after decompression."""
    body = gzip.compress(b'{"id": "1", "text": "' + b"x" * size + b'"}')
    return Delivery(Message("orders", body, headers={CONTENT_ENCODING: "gzip"}))


def test_what_waits_holds_no_decompressed_body() -> None:
    """A hundred small bodies of a megabyte each take little memory, and each is decoded when it runs."""
    intake = Intake(READER)
    waiting = [delivery(1_000_000) for _ in range(100)]
    tracemalloc.start()
    try:
        for received in waiting:
            intake.understand(received)
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()
    assert make_item(waiting[0], READER).payload["id"] == "1"


def test_plain_body_is_decoded_once() -> None:
    """The payload of a body that was not compressed is kept for its first run."""
    received = Delivery(Message("orders", b'{"id": "1"}'))
    Intake(READER).understand(received)
    assert received.payload == {"id": "1"}
