"""Bodies with a schema registry's header: read by one format, and told by the others."""

import struct
from typing import Any

import pytest
from pydantic import BaseModel

from oncemq import App
from oncemq.errors import Undecodable, Unpublishable
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Message
from oncemq.message.outgoing import OutgoingTopic
from oncemq.message.registry_header import ID_HEADER
from oncemq.testing import TestApp

ID = 70_017
HEADER = b"\0" + struct.pack(">I", ID)
AVRO = HEADER + b"\x02\x06abc"
JSON = HEADER + b'{"order": 1}'


def decode(body: bytes, body_format: str, *keys: str) -> object:
    """Decode a body as a topic of this format does."""
    return make_decoder(body_format)(Message("orders", body, keys=keys))


def refusal(body: bytes, body_format: str, *keys: str) -> str:
    """Return why a body cannot be decoded."""
    with pytest.raises(Undecodable) as caught:
        decode(body, body_format, *keys)
    return str(caught.value)


def test_json_behind_the_header_is_decoded() -> None:
    """The format confluent-json reads what follows the schema's id."""
    assert decode(JSON, "confluent-json") == {"order": 1}


@pytest.mark.parametrize("body_format", ["json", "text"])
def test_a_header_that_the_format_does_not_read_is_told(body_format: str) -> None:
    """The error names topic, key, schema, and the format to write."""
    assert refusal(JSON, body_format, "A-1") == (
        f"the body has a schema registry's header (topic 'orders', key 'A-1', schema id {ID}): "
        "write format: confluent-json at the topic"
    )


@pytest.mark.parametrize("body_format", ["json", "text", "confluent-json"])
def test_avro_is_told_to_be_decoded_by_the_handler(body_format: str) -> None:
    """What follows the header is no JSON: only a handler can decode it."""
    text = refusal(AVRO, body_format)
    assert f"(topic 'orders', key none, schema id {ID})" in text
    assert text.endswith(
        "if it is Avro or Protobuf, write format: bytes at the topic and decode it in the handler"
    )


def test_bytes_with_a_header_are_given_to_the_handler() -> None:
    """The format bytes changes nothing."""
    assert decode(AVRO, "bytes") == AVRO


@pytest.mark.parametrize("body", [b'{"order": 1}', b"", b"\0\0\0\1"])
def test_a_body_without_the_header_is_told(body: bytes) -> None:
    """Where the header is expected, plain JSON is refused with the format to write."""
    assert "write format: json at the topic" in refusal(body, "confluent-json")


@pytest.mark.parametrize("encoding", ["utf-16-be", "utf-16", "utf-32"])
def test_json_in_utf_16_is_not_taken_for_a_schema(encoding: str) -> None:
    """It has zeros, too, and keeps an error of its own."""
    assert "looks like UTF-16 or UTF-32" in refusal('{"name": "é"}'.encode(encoding), "json")


def test_a_publisher_is_told_to_give_the_header_itself() -> None:
    """No registry is asked for a schema's id; bytes with a header are published."""
    topic = OutgoingTopic("orders", "main", {}, "confluent-json", make_decoder("confluent-json"), None)
    with pytest.raises(Unpublishable, match="give the whole body as bytes, with its header"):
        topic.message({"order": 1})
    assert topic.message(JSON).body == JSON


# What the serializers of confluent-kafka 2.16.1 write for the order A-1, with schemas of the ids 1 to 3.
THEIRS = {
    "JSON Schema": b'\0\0\0\0\1{"order":"A-1","cents":300}',
    "Avro": b"\0\0\0\0\2\x06A-1\xd8\x04",
    "Protobuf": b"\0\0\0\0\3\x02\x0e\n\x03A-1",
}
IN_HEADERS = {ID_HEADER: "\1j\rS"}
"""Their serializers may be told to put the schema's id here; it is no text."""


@pytest.mark.parametrize("kind", THEIRS)
def test_what_the_registrys_own_serializers_write_is_read_or_refused(kind: str) -> None:
    """JSON is read; Avro and Protobuf are refused with the schema's id, never taken for text, and whole where the handler decodes."""
    body, number = THEIRS[kind], list(THEIRS).index(kind) + 1
    if kind == "JSON Schema":
        assert decode(body, "confluent-json") == {"order": "A-1", "cents": 300}
    else:
        assert f"schema id {number}" in refusal(body, "confluent-json")
    for body_format in ("json", "text"):
        assert f"schema id {number}" in refusal(body, body_format)
    assert decode(body, "bytes") == body


@pytest.mark.parametrize("body_format", ["json", "confluent-json"])
def test_json_whose_schema_is_named_in_the_headers_has_nothing_in_front(body_format: str) -> None:
    """A producer that was told to write the id there can share a topic with those that write it before the body."""
    message = Message("orders", THEIRS["JSON Schema"][5:], headers=IN_HEADERS)
    assert make_decoder(body_format)(message) == {"order": "A-1", "cents": 300}


@pytest.mark.parametrize("body_format", ["json", "confluent-json"])
def test_avro_whose_schema_is_named_in_the_headers_is_told(body_format: str) -> None:
    """The error names the header, and the format to write."""
    message = Message("orders", THEIRS["Avro"][5:], keys=("A-1",), headers=IN_HEADERS)
    with pytest.raises(
        Undecodable, match=rf"its header {ID_HEADER} \(topic 'orders', key 'A-1'\): .*format: bytes"
    ):
        make_decoder(body_format)(message)


class Order(BaseModel):
    """What every body must be valid for."""

    order: str
    cents: int


def test_the_topics_schema_sees_what_is_behind_the_header() -> None:
    """Whatever schema the id names, a body is valid for the type at the topic, or a dead letter."""
    got: list[Any] = []
    app = App("shop", brokers={"main": "embedded://"}, database="sqlite:///unused.db")
    app.topic("orders", key="body.order", format="confluent-json", schema=Order, strategies=["none"])

    @app.consumer(topic="orders", name="pay")
    def pay(order: dict[str, Any]) -> None:
        got.append(order)

    with TestApp(app) as bench:
        assert bench.publish("orders", THEIRS["JSON Schema"]).applied
        assert bench.publish("orders", HEADER + b'{"order": "A-2", "cents": "many"}').code == "invalid"
        assert bench.publish("orders", THEIRS["JSON Schema"][5:], headers=IN_HEADERS).applied
    assert got == [{"order": "A-1", "cents": 300}] * 2
