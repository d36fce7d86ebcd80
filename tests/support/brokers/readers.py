"""Readers of every kind of topic, and what must be true of everything that they read."""

from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Envelope
from oncemq.message.identity import MAX_IDENTITY_BYTES, MAX_KEY_BYTES, MAX_VERSION, MIN_VERSION
from oncemq.message.reader import Reader

READERS = {
    "key alone": Reader(
        "b", "orders", "g", key="body.order_id", version=None, identity=(), decoder=make_decoder()
    ),
    "key and version": Reader(
        "b", "orders", "g", key="body.order_id", version="body.version", identity=(), decoder=make_decoder()
    ),
    "several parts": Reader(
        "b",
        "orders",
        "g",
        key="[headers.tenant, keys[0], message_id]",
        version=None,
        identity=("key", "body.version"),
        decoder=make_decoder(),
    ),
    "JMESPath": Reader(
        "b",
        "orders",
        "g",
        key="headers.tenant || keys[0] || message_id || to_string(body.order_id)",
        version="length(body) || `1`",
        identity=("key", "max_by(body.x, &a)"),
        decoder=make_decoder(),
    ),
    "text": Reader("b", "orders", "g", key="body", version=None, identity=(), decoder=make_decoder("text")),
    "bytes": Reader(
        "b", "orders", "g", key="message_id", version=None, identity=(), decoder=make_decoder("bytes")
    ),
}


def assert_usable(envelope: Envelope) -> None:
    """Check that databases, brokers and logs can carry what was read."""
    assert 0 < len(envelope.key.encode()) <= MAX_KEY_BYTES
    assert 0 < len(envelope.identity.encode()) <= MAX_IDENTITY_BYTES
    assert "\0" not in envelope.key + envelope.identity
    assert envelope.version is None or MIN_VERSION <= envelope.version <= MAX_VERSION
