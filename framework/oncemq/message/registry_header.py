"""Recognises the header that a schema registry's clients put in front of bodies: a zero, and the schema's id in four bytes.

Newer clients may be told to put the id among the message's headers instead; the body then has nothing in front.

Confluent's wire format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from typing import Final

from oncemq.errors import Undecodable
from oncemq.message.envelope import Message

CONFLUENT_JSON: Final = "confluent-json"
"""The format of JSON behind such a header."""
ID_HEADER: Final = "__value_schema_id"
"""The message's header with the schema's id where clients are told not to put it in front of the body."""
LENGTH: Final = 5
_USUAL: Final = b"\0\0"
"""How every header of the first 16 million schemas begins, and UTF-16 does not."""
_JSON_BEGINS: Final = (b"{", b"[", b'"')
_BYTES: Final = "if it is Avro or Protobuf, write format: bytes at the topic and decode it in the handler"


def looks_registered(body: bytes) -> bool:
    """Return whether a body has such a header, as far as its bytes tell."""
    return body.startswith(_USUAL) and len(body) >= LENGTH


def behind_header(body: bytes) -> bytes:
    """Return what follows the header.

    Raises:
        Undecodable: there is none.
    """
    if len(body) < LENGTH or body[0]:
        raise Undecodable(
            f"format {CONFLUENT_JSON} expects a schema registry's header (a zero, then the schema's id in 4 bytes), but the "
            f"body begins with {body[:LENGTH]!r}: if its producers use no registry, write format: json at the topic"
        )
    return body[LENGTH:]


def explained(message: Message, body: bytes, body_format: str, error: Undecodable) -> Undecodable:
    """Return the error for a body that cannot be decoded: of one with a header, which schema it names and what to write.

    Args:
        message: whose body it is.
        body: after decompression.
        body_format: of the topic.
        error: why it cannot be decoded.
    """
    expected = body_format == CONFLUENT_JSON
    if ID_HEADER in message.headers:
        return Undecodable(
            f"the message names a registry's schema in its header {ID_HEADER} (topic {message.topic!r}, key {_key_of(message)}): "
            f"{error}; {_BYTES}"
        )
    if not looks_registered(body) and (not expected or body[:1] != b"\0"):
        return error
    number = int.from_bytes(body[1:LENGTH])
    found = f"the body has a schema registry's header (topic {message.topic!r}, key {_key_of(message)}, schema id {number})"
    if expected:
        return Undecodable(f"{found}, but no JSON behind it: {error}; {_BYTES}")
    if body[LENGTH:].lstrip().startswith(_JSON_BEGINS):
        return Undecodable(f"{found}: write format: {CONFLUENT_JSON} at the topic")
    return Undecodable(f"{found}: {_BYTES}")


def _key_of(message: Message) -> str:
    return repr(message.keys[0]) if message.keys else "none"
