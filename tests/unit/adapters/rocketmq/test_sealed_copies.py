"""What RocketMQ takes in no copy as it is travels whole in the body of one, and is what it was when it comes back."""

import zlib
from datetime import timedelta

import pytest

from oncemq.contracts.adapter import RetryRequest
from oncemq.message import headers as names
from oncemq.message.envelope import Delivery
from oncemq_adapters.rocketmq.remoting.consumer.held_retries import _marked
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import message_of
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import (
    dead_copy,
    replay_copy,
    retry_copy,
)
from oncemq_adapters.rocketmq.sealed_copies import opened
from oncemq_adapters.rocketmq_client.properties import LONGEST_PROPERTIES, to_text
from oncemq_adapters.rocketmq_client.protocol import Outgoing, StoredMessage, unpack

CAUSE = {names.REASON: "rejected", names.ATTEMPT: "2", names.ERROR_TEXT: "e" * 2000}


def stored(pad: int, **more: str) -> StoredMessage:
    """Return a message whose properties have nearly the most bytes that RocketMQ takes."""
    properties = {"UNIQ_KEY": "own", "KEYS": "k-1", "TAGS": "a", **more}
    properties["pad"] = "x" * (LONGEST_PROPERTIES - len(to_text({**properties, "pad": ""})) - pad)
    return StoredMessage("orders", b"\x00{}", properties, 3, 1, 5, 0, 0)


def received(copy: Outgoing) -> StoredMessage:
    """Return a copy as the group gets it."""
    found = opened(copy.properties, copy.body) or (copy.properties, copy.body, copy.packing)
    return StoredMessage(copy.topic, found[1], found[0], 0, 1, 5, copy.attempts, 0, packing=found[2])


@pytest.mark.parametrize("left", [0, 1, 300])
def test_properties_at_the_limit_come_back(left: int) -> None:
    """The retry is tried once more, the dead letter says why, and the replay is a first try, all with what was sent."""
    sent = stored(left)
    retry = retry_copy(sent, "shop", "b", {names.ATTEMPT: "2"}, timedelta(0))
    assert len(to_text(retry.properties)) <= LONGEST_PROPERTIES
    second = message_of("orders", received(retry))
    first = message_of("orders", sent)
    assert (second.body, second.keys, second.message_id, second.attempt) == (first.body, ("k-1",), "own", 2)
    assert second.headers["pad"] == first.headers["pad"]
    letter = dead_copy(received(retry), "shop", "b", CAUSE)
    assert letter.properties[names.REASON] == "rejected"
    again = message_of("orders", received(replay_copy(received(letter), "shop", "b")))
    assert (again.body, again.keys, again.message_id, again.attempt) == (first.body, ("k-1",), "own", 1)
    assert dict(again.headers) == dict(first.headers)


def test_a_long_id_is_not_lost() -> None:
    """An id too long to stand outside is inside."""
    copy = retry_copy(stored(0, UNIQ_KEY="u" * 2000), "shop", "b", {names.ATTEMPT: "2"}, timedelta(0))
    assert message_of("orders", received(copy)).message_id == "u" * 2000


@pytest.mark.parametrize(
    "body", [b"", b"oncemq-sealed 1\n", b"oncemq-sealed 1\n{}\n", b"oncemq-sealed 1\n[1]\nx"]
)
def test_what_is_not_sealed_is_not_opened(body: bytes) -> None:
    """A copy that only says that it is sealed is handed over as it is."""
    assert opened({names.SEALED: "1"}, body) is None


def test_a_body_that_cannot_be_unpacked_stays_packed() -> None:
    """Its copies say how it is packed: with the missing package, a replay can be read."""
    packed = StoredMessage("orders", b"cut", {"UNIQ_KEY": "own"}, 3, 1, 5, 0, 0, "no package", 0x101)
    letter = dead_copy(packed, "shop", "b", CAUSE)
    assert (letter.body, letter.packing) == (b"cut", 0x101)
    large = stored(0)
    large.body, large.packing = zlib.compress(b"{}"), 0x301
    inner = received(retry_copy(large, "shop", "b", {names.ATTEMPT: "2"}, timedelta(0)))
    assert (unpack(inner.body, inner.packing >> 8 & 7), inner.packing) == ((b"{}", ""), 0x301)


def test_a_retry_that_this_process_holds_is_counted() -> None:
    """On fifo topics a retry keeps its place in its topic; what this process wrote of it is believed."""
    sent = StoredMessage("orders", b"{}", {"UNIQ_KEY": "own", names.ATTEMPT: "99"}, 3, 1, 5, 0, 0)
    delivery = Delivery(message_of("orders", sent), None, 1)
    again = _marked(sent, RetryRequest(delivery, timedelta(0), {names.ATTEMPT: "2"}))
    assert message_of("orders", again).attempt == 2
