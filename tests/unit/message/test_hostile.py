"""No message, however nasty, ends as anything but an envelope or a refusal, and none takes long."""

import json
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.errors import MessageRefused
from oncemq.message.envelope import Message
from oncemq.message.reader import Reader
from support.brokers.readers import READERS, assert_usable
from support.hostile.nasties import Nasty, nasties

LIMIT_SECONDS = 0.1


def read_or_refuse(reader: Reader, message: Message) -> float:
    """Read a message and return how many seconds of CPU time it took; a refusal is fine."""
    began = time.thread_time()
    try:
        envelope, _ = reader.read(message)
    except MessageRefused as refusal:
        took = time.thread_time() - began
        text = str(refusal)
        assert text
        assert len(text) < 500
        assert text.isprintable(), text
        assert text.encode()
    else:
        took = time.thread_time() - began
        assert_usable(envelope)
    return took


def test_the_corpus_has_two_hundred_different_nasties() -> None:
    """A label names one message, and there are enough of them."""
    labels = [nasty.label for nasty in nasties()]
    assert len(labels) == len(set(labels))
    assert len(labels) >= 200


@pytest.mark.parametrize("nasty", list(nasties()), ids=lambda nasty: nasty.label)
def test_a_nasty_ends_as_an_envelope_or_a_refusal(nasty: Nasty) -> None:
    """Every reader answers within 100 ms of CPU time, by one of the two, with a text that can be shown and sent."""
    for name, reader in READERS.items():
        # The best of three: a collection of garbage that others left is not what is measured.
        took = read_or_refuse(reader, nasty.message)
        if took > LIMIT_SECONDS:
            took = min(took, *(read_or_refuse(reader, nasty.message) for _ in range(2)))
        assert took <= LIMIT_SECONDS, f"{name}: {took:.3f} s"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["order_id", "version", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(
    body=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()),
    headers=st.dictionaries(
        st.sampled_from(["tenant", "Tenant", "content-encoding"]) | st.text(max_size=5),
        st.sampled_from(["gzip", "deflate", ""]) | st.text(st.characters(), max_size=20),
    ),
    keys=st.lists(st.text(st.characters(), max_size=20), max_size=2),
    message_id=st.none() | st.text(st.characters(), max_size=20),
)
def test_anything_ends_as_an_envelope_or_a_refusal(body, headers, keys, message_id) -> None:
    """Whatever bytes and texts come, every reader answers by one of the two."""
    message = Message("orders", body, message_id, headers, tuple(keys))
    for reader in READERS.values():
        read_or_refuse(reader, message)


def test_a_nasty_that_was_read_can_be_pickled() -> None:
    """An envelope read from a message is the same after a round trip through pickle."""
    envelope, _ = READERS["key alone"].read(Message("orders", b'{"order_id": "\xc3\xb6"}', "id", {"a": "b"}))
    assert pickle.loads(pickle.dumps(envelope)) == envelope
