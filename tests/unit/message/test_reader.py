"""From messages to envelopes."""

import pickle
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

from oncemq.errors import InvalidKey, MissingKey, Undecodable
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Envelope, Message
from oncemq.message.reader import Reader

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def reader(key: str = "body.id", version: str | None = None, identity: Sequence[str] = ()) -> Reader:
    """Return a reader of the topic `orders`."""
    return Reader(
        "shop", "orders", "loyalty", key=key, version=version, identity=identity, decoder=make_decoder()
    )


def identity_of(body: bytes, **declared) -> str:
    """Return the identity that a message with this body has."""
    return reader(**declared).read(Message("x", body, "broker-1"))[0].identity


def test_an_envelope_says_what_the_message_said() -> None:
    """Every field of the envelope comes from the message or the topic."""
    message = Message("orders", b'{"id": 7, "v": 3}', "m-1", {"a": "b"}, (), 2, True, NOON)
    envelope, body = reader(version="body.v").read(message)
    assert body == {"id": 7, "v": 3}
    assert envelope == Envelope(
        "shop", "orders", "loyalty", "7", 3, "7:3", "m-1", 2, {"a": "b"}, message.body, NOON
    )


def test_an_envelope_is_a_value() -> None:
    """It is frozen, comparable, survives pickle, and has no room for more."""
    envelope, _ = reader().read(Message("orders", b'{"id": "a"}'))
    assert envelope == reader().read(Message("orders", b'{"id": "a"}'))[0]
    assert envelope != reader().read(Message("orders", b'{"id": "b"}'))[0]
    assert pickle.loads(pickle.dumps(envelope)) == envelope
    assert type(envelope) is Envelope
    with pytest.raises(FrozenInstanceError):
        envelope.key = "b"
    with pytest.raises((AttributeError, TypeError)):
        envelope.extra = 1


def test_the_identity_is_the_key_by_default() -> None:
    """Without a version two messages of one key are the same."""
    assert identity_of(b'{"id": "o-1"}') == "o-1"


def test_the_identity_is_key_and_version_where_one_is_declared() -> None:
    """The number 7 and the text "007" are the same version."""
    assert identity_of(b'{"id": "o-1", "v": 7}', version="body.v") == "o-1:7"
    assert identity_of(b'{"id": "o-1", "v": "007"}', version="body.v") == "o-1:7"


def test_a_colon_in_a_key_cannot_imitate_a_version() -> None:
    """The key `a:1` without version part differs from key `a`, version 1."""
    plain = identity_of(b'{"id": "a", "v": 1}', version="body.v")
    assert identity_of(b'{"id": "a:1"}') != plain
    assert identity_of(b'{"id": "a:1", "v": 1}', version="body.v") == "a%3A1:1"


def test_a_declared_identity_replaces_the_default() -> None:
    """Its parts are expressions, or the words key and version."""
    body = b'{"id": "o", "v": 2, "pay": "p:1"}'
    assert identity_of(body, identity=["key", "body.pay"]) == "o:p%3A1"
    assert identity_of(body, version="body.v", identity=["version", "key"]) == "2:o"
    assert identity_of(body, version="body.v", identity=["key"]) == "o"


def test_the_brokers_id_counts_only_where_it_is_declared() -> None:
    """message_id is an identity when the topic says so, and never otherwise."""
    assert identity_of(b'{"id": "o"}', identity=["message_id"]) == "broker-1"
    with pytest.raises(MissingKey, match="identity message_id"):
        reader(identity=["message_id"]).read(Message("orders", b'{"id": "o"}', None))
    with pytest.raises(MissingKey, match=r"key body\.id"):
        reader().read(Message("orders", b"{}", "broker-1", {}, ("k",)))


def test_a_key_can_have_several_parts() -> None:
    """`[a, b]` is one key, encoded so that other parts give another key."""
    both = reader(key="[body.a, body.b]")
    first, _ = both.read(Message("orders", b'{"a": "x:y", "b": "z"}'))
    second, _ = both.read(Message("orders", b'{"a": "x", "b": "y:z"}'))
    assert (first.key, second.key) == ("x%3Ay:z", "x:y%3Az")
    assert first.identity != second.identity


def test_an_array_in_the_body_is_no_key_of_several_parts() -> None:
    """Only the topic can declare parts; a message cannot."""
    with pytest.raises(InvalidKey, match="an array"):
        reader().read(Message("orders", b'{"id": ["a", "b"]}'))


def test_a_missing_part_is_refused_with_its_own_name() -> None:
    """The text names the topic and the part that was not found."""
    with pytest.raises(MissingKey, match=r"body\.b.*'orders'"):
        reader(identity=["body.id", "body.b"]).read(Message("orders", b'{"id": 1}'))


def test_a_missing_version_is_refused() -> None:
    """A topic that declares a version takes no message without."""
    with pytest.raises(InvalidKey, match=r"version body\.v of topic 'orders'"):
        reader(version="body.v").read(Message("orders", b'{"id": 1}'))


def test_a_long_key_full_of_escapes_is_refused() -> None:
    """Escapes cannot make the default identity longer than an index holds."""
    with pytest.raises(InvalidKey, match="the most is 512"):
        reader().read(Message("orders", b'{"id": "' + b":" * 255 + b'"}'))


def test_a_body_is_decoded_each_time() -> None:
    """decode() shares nothing with what read() gave."""
    message = Message("orders", b'{"id": "o", "lines": []}')
    alone = reader()
    _, body = alone.read(message)
    body["lines"].append(1)
    assert alone.decode(message) == {"id": "o", "lines": []}


def test_an_undecodable_body_is_refused_before_anything_else() -> None:
    """The reason is the body, not the key that could not be looked for."""
    with pytest.raises(Undecodable):
        reader().read(Message("orders", b"{"))


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"key": "bdy.id"}, "key: 'bdy.id'"),
        ({"version": "body["}, "version: 'body['"),
        ({"identity": ["body.id", "mesage_id"]}, "identity: 'mesage_id'"),
        ({"identity": ["key", "version"]}, "identity: it names version"),
        ({"key": "[body.a, ]"}, "key: an expression is empty"),
    ],
)
def test_a_wrong_declaration_is_refused_at_start(declared, words: str) -> None:
    """The text says which of key, version and identity it is."""
    with pytest.raises(ValueError) as refusal:
        reader(**declared)
    assert words in str(refusal.value)
