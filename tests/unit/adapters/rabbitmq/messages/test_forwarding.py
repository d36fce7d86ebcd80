"""Copies of messages: as they came where that can be sent, sealed where it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.message import headers as names
from oncemq.message.envelope import Message
from oncemq_adapters.rabbitmq.messages.field_tables import (
    Unreadable,
    join_properties,
    split_properties,
    split_table,
)
from oncemq_adapters.rabbitmq.messages.forwarding import MOST_BYTES, next_hop, opened, replayed
from oncemq_adapters.rabbitmq.messages.properties import read_any
from oncemq_adapters.rabbitmq.messages.raw_properties import RawProperties
from support.hostile.amqp import MESSAGES, NOT_FINITE, headers_only, long_string, padded

ADDED = {names.ATTEMPT: "2", names.REASON: "rejected", names.ERROR_TEXT: "e" * 2000, names.CONSUMER: "points"}
UNREADABLE = MESSAGES["header: timestamp in milliseconds"]


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES)
def test_a_copy_fits_into_a_frame(raw: bytes) -> None:
    """Whatever the original, the copy can be sent, says which try it is and why, and gives the original back."""
    copy = next_hop(raw, b"body", ADDED, "guest")
    assert len(copy.properties.raw) <= MOST_BYTES
    assert copy.properties.fault is None
    assert copy.properties.headers[names.ATTEMPT] == "2"
    assert copy.properties.headers[names.REASON] == "rejected"
    inner, body = opened(copy.properties, copy.body)
    again = replayed(inner.raw, body, "guest")
    assert (again.properties.raw, again.body) == (replayed(raw, b"body", "guest").properties.raw, b"body")


@pytest.mark.parametrize("size", range(MOST_BYTES - 2200, MOST_BYTES + 1, 97))
def test_every_size_up_to_the_limit_travels(size: int) -> None:
    """Our headers are shortened, then the original is sealed; its own are never cut."""
    copy = next_hop(padded(size), b"body", ADDED, "guest")
    assert len(copy.properties.raw) <= MOST_BYTES
    inner, _ = opened(copy.properties, copy.body)
    assert inner.headers["pad"] == RawProperties(padded(size)).headers["pad"]


def test_what_pika_cannot_read_is_sealed() -> None:
    """The queue of dead letters can be read by every client."""
    copy = next_hop(UNREADABLE, b"body", ADDED, "guest")
    assert copy.properties.fault is None
    assert copy.properties.headers[names.SEALED] == "1"
    inner, body = opened(copy.properties, copy.body)
    assert (inner.raw, body) == (UNREADABLE, b"body")
    assert inner.headers[names.REASON] == "rejected"


@pytest.mark.parametrize("value", NOT_FINITE.values(), ids=NOT_FINITE)
def test_numbers_that_are_none_are_refused(value: bytes) -> None:
    """The message says so; nothing raises."""
    message, refusal = read_any(
        "orders", b"", RawProperties(headers_only([(b"h", value)])), redelivered=False
    )
    assert refusal is not None
    assert message.headers["h"] in ("nan", "-inf")


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"oncemq-sealed 1\n", b"oncemq-sealed 1\n[]\n", b"oncemq-sealed 1\n{}\n"]
)
def test_a_body_that_is_not_sealed_is_left_alone(body: bytes) -> None:
    """A header alone makes no envelope."""
    properties = RawProperties(headers_only([(names.SEALED.encode(), long_string(b"S", b"1"))]))
    assert opened(properties, body) == (properties, body)


def test_a_stranger_writes_no_history() -> None:
    """What comes by an exchange says nothing of tries before; from the group's own queues it does."""
    forged = {
        names.ATTEMPT: b"99",
        names.FIRST_FAILED_AT: b"2020-01-01T00:00:00+00:00",
        names.ORIGIN_TOPIC: b"refunds",
        names.REASON: b"crashed",
        names.SEALED: b"1",
        names.KEY: b"k-1",
    }
    raw = headers_only([(name.encode(), long_string(b"S", text)) for name, text in forged.items()])
    message, _ = read_any("orders", b"", RawProperties(raw), redelivered=False, from_group=False)
    assert (message.attempt, message.first_failed_at, dict(message.headers)) == (1, None, {names.KEY: "k-1"})
    ours, _ = read_any("orders", b"", RawProperties(raw), redelivered=False, from_group=True)
    assert ours.attempt == 99


def test_forged_history_does_not_travel() -> None:
    """A copy says of tries before what this consumer knows, and nothing else."""
    raw = headers_only([(b"oncemq-first-failed-at", long_string(b"S", b"2020-01-01T00:00:00+00:00"))])
    assert dict(next_hop(raw, b"", {names.ATTEMPT: "1"}, "guest").properties.headers) == {names.ATTEMPT: "1"}


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "2100-01-01T00:00:00Z"]
)
def test_a_time_that_cannot_be_is_none(text: str) -> None:
    """No order and no deadline follows it."""
    raw = headers_only([(names.PUBLISHED_AT.encode(), long_string(b"S", text.encode()))])
    message, refusal = read_any("orders", b"", RawProperties(raw), redelivered=False)
    assert (message.published_at, refusal) == (None, None)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Nothing raises but what is caught; what can be taken apart is put together as it was."""
    message, _ = read_any("orders", b"body", RawProperties(raw), redelivered=False)
    assert isinstance(message, Message)
    copy = next_hop(raw, b"body", ADDED, "guest")
    inner, body = opened(copy.properties, copy.body)
    assert body == b"body"
    assert inner.headers[names.ATTEMPT] == "2"
    try:
        found = split_properties(raw)
        split_table(found.get("headers", bytes(4)))
    except Unreadable:
        assert inner.raw == raw
    else:
        assert split_properties(join_properties(found)) == found
