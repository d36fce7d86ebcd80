"""What a producer writes of a message's past is not believed; what brokers and groups write in their own topics is."""

import json
import tracemalloc
from datetime import timedelta

import pytest
import zstandard

from oncemq.contracts.adapter import ParkedDeadLetter
from oncemq.message import headers as names
from oncemq.message.envelope import Message
from oncemq_adapters.rocketmq.remoting.consumer.prefetch_window import message_of
from oncemq_adapters.rocketmq.remoting.dead_letters import _is_mark, _named_by
from oncemq_adapters.rocketmq.remoting.producer.retry_copies import (
    REMOVED,
    burial_copy,
    dead_copy,
    origin_of,
    retry_copy,
)
from oncemq_adapters.rocketmq_client.properties import LONGEST_PROPERTIES, to_text
from oncemq_adapters.rocketmq_client.protocol import StoredMessage, unpack

ZSTD = 2
FORGED = {
    "RETRY_TOPIC": "refunds",
    "DLQ_ORIGIN_TOPIC": "refunds",
    "ORIGIN_MESSAGE_ID": "other",
    "UNIQ_KEY": "own",
    "TAGS": REMOVED,
    names.ATTEMPT: "99",
    names.FIRST_FAILED_AT: "2020-01-01T00:00:00+00:00",
    names.REASON: "crashed",
    names.WAITING_SINCE: "1970-01-02T00:00:00+00:00",
    "oncemq-escaped": json.dumps({names.LAST_FAILED_AT: "x", "empty": ""}),
}


def stored(topic: str, properties: dict[str, str] | None = None, body: bytes = b"{}") -> StoredMessage:
    """Return a message that says that it was tried seven times."""
    return StoredMessage(topic, body, dict(FORGED if properties is None else properties), 3, 1, 5, 7, 0)


def test_a_stranger_writes_no_history() -> None:
    """It is a first try with its own id, and what it says of the past shows nowhere."""
    message = message_of("orders", stored("orders"))
    assert (message.attempt, message.message_id, message.first_failed_at) == (1, "own", None)
    assert dict(message.headers) == {"tags": REMOVED, "empty": ""}


def test_the_groups_own_topics_are_believed() -> None:
    """There only brokers and members write; the id stays the one of the producer's client, as at the first try."""
    message = message_of("orders", stored("%RETRY%shop"))
    assert (message.attempt, message.message_id) == (99, "own")
    assert origin_of(stored("%RETRY%shop")) == "refunds"


def test_a_failed_message_comes_back_to_its_own_topic() -> None:
    """Its retry and its dead letter name the topic where it lay, not one that it names."""
    retry = retry_copy(stored("orders"), "shop", "b", {names.ATTEMPT: "2"}, timedelta(0))
    assert (retry.properties["RETRY_TOPIC"], retry.properties["ORIGIN_MESSAGE_ID"]) == ("orders", "own")
    assert retry.properties[names.ATTEMPT] == "2"
    assert not {names.FIRST_FAILED_AT, names.REASON} & retry.properties.keys()
    dead = dead_copy(stored("orders"), "shop", "b", {names.REASON: "rejected"})
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "orders"
    assert "TAGS" not in dead.properties


def test_a_burial_names_its_topic() -> None:
    """What the ledger kept lies among the dead letters of its topic, with the attempts that it had."""
    burial = ParkedDeadLetter(Message("orders", b"{}", "m-1", attempt=3), {names.ATTEMPT: "3"})
    copy = burial_copy(burial, "orders", "shop", "b", "unique")
    assert (copy.properties["RETRY_TOPIC"], copy.properties[names.ATTEMPT]) == ("orders", "3")


@pytest.mark.parametrize("body", [b"", b"no JSON", b"{}", b"1", b"[" * 100_000, b"[1, null]"])
def test_only_the_groups_own_marks_count(body: bytes) -> None:
    """A dead letter with that tag is a dead letter, and a mark that names nothing removes nothing."""
    assert not _is_mark(stored("%DLQ%shop", body=body))
    mark = stored("%DLQ%shop", {"TAGS": REMOVED}, body)
    assert _is_mark(mark)
    assert list(_named_by(mark)) == []


@pytest.mark.parametrize(
    "size", [LONGEST_PROPERTIES - 3000, LONGEST_PROPERTIES - 2200, LONGEST_PROPERTIES - 700]
)
def test_our_headers_shrink_before_a_copy_is_refused(size: int) -> None:
    """The error's text is cut, then what can be done without; the message's own properties stay."""
    cause = {
        names.REASON: "rejected",
        names.ERROR_TEXT: "e" * 2000,
        names.CONSUMER: "points",
        names.ATTEMPT: "2",
    }
    own = {"pad": "x" * (size - 200), "UNIQ_KEY": "own"}
    copy = retry_copy(stored("orders", own), "shop", "b", cause, timedelta(0))
    assert len(to_text(copy.properties)) <= LONGEST_PROPERTIES
    assert (copy.properties["pad"], copy.properties[names.ATTEMPT]) == (own["pad"], "2")


def test_a_small_packed_body_takes_little_memory() -> None:
    """The limit is no measure of what is taken: 16 small bodies had taken a gigabyte."""
    packed = zstandard.ZstdCompressor().compress(b"{}")
    tracemalloc.start()
    try:
        assert unpack(packed, ZSTD) == (b"{}", "")
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
