"""Whatever RabbitMQ passes on is read, retried, dead-lettered, shown and replayed byte by byte, and hurts no neighbour."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pika
import pytest

from oncemq.contracts.adapter import Adapter, DeadLetterRequest, RetryRequest, Subscription
from oncemq.message import headers as names
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rabbitmq.connection.pika_connection import TolerantConnection
from oncemq_adapters.rabbitmq.messages.raw_properties import raw_of
from oncemq_adapters.rabbitmq.metadata import EXCHANGE, ROUTING_KEY
from support.brokers.rabbitmq import adapter_on, connect
from support.hostile.amqp import MESSAGES, headers_only, long_string, send

GRACE = timedelta(seconds=5)
CAUSE = {
    names.REASON: "rejected",
    names.ATTEMPT: "1",
    names.CONSUMER: "points",
    names.ERROR_CLASS: "Reject",
    names.ERROR_TEXT: "e" * 2000,
}
UNREADABLE = frozenset(
    {
        *("header: timestamp in milliseconds", "header: timestamp of 2^63"),
        *("header: 600 levels of tables", "header: 1,200 levels of arrays"),
        *("header: table", "a header name that is not UTF-8"),
    }
)

EXTENSIBLE = frozenset({"header: table"})
"""Not readable by pika, but the end of the table can be found."""
FULL = frozenset({"headers of a whole frame", "headers of a frame but one byte"})
"""Without room for another header."""


@pytest.fixture
def subscription(fresh: str) -> Subscription:
    """Return a subscription with names of its own; a quorum queue would add a header of its own."""
    return Subscription(
        "points", f"{fresh}.paid", f"{fresh}-group", {"exchange": fresh, "queue_type": "classic"}, 1000
    )


@pytest.fixture
def adapter(rabbitmq_url: str, subscription: Subscription) -> Iterator[Adapter]:
    """Return an adapter whose queues exist."""
    adapter = adapter_on(rabbitmq_url)
    adapter.prepare([subscription])
    yield adapter
    adapter.close(grace=GRACE)


def publish(url: str, subscription: Subscription, *messages: tuple[bytes, bytes]) -> None:
    """Publish properties and bodies as a producer does."""
    connection = connect(url)
    channel = connection.channel()
    channel.confirm_delivery()
    for raw, body in messages:
        send(channel, subscription.options["exchange"], subscription.topic, raw, body)
    connection.close()


def fetch(url: str, queue: str) -> dict[bytes, bytes]:
    """Return the properties of what lies in a queue, by body."""
    connection = pika.BlockingConnection(pika.URLParameters(url), _impl_class=TolerantConnection)
    channel, found = connection.channel(), {}
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found[got[2]] = raw_of(got[1])
    connection.close()
    return found


def persistent(raw: bytes) -> bytes:
    """Return properties with delivery mode 2: headers and content type come before it, a message id after it."""
    flags, rest = int.from_bytes(raw[:2], "big"), raw[2:]
    parts = (rest, b"\x02") if flags >= 0x2000 else (b"\x02", rest)
    return (flags | 0x1000).to_bytes(2, "big") + b"".join(parts)


def with_origin(raw: bytes, subscription: Subscription) -> bytes:
    """Return properties whose table ends with two headers more: the exchange and the routing key of the first delivery."""
    origin = {EXCHANGE: str(subscription.options["exchange"]), ROUTING_KEY: subscription.topic}
    fields = b"".join(
        bytes([len(name)]) + name.encode() + b"S" + len(text).to_bytes(4, "big") + text.encode()
        for name, text in origin.items()
    )
    flags, at = int.from_bytes(raw[:2], "big"), 2
    for flag in (0x8000, 0x4000):  # content type and encoding
        at += 1 + raw[at] if flags & flag else 0
    if not flags & 0x2000:
        return (
            (flags | 0x2000).to_bytes(2, "big")
            + raw[2:at]
            + len(fields).to_bytes(4, "big")
            + fields
            + raw[at:]
        )
    end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
    return raw[:at] + (end - at - 4 + len(fields)).to_bytes(4, "big") + raw[at + 4 : end] + fields + raw[end:]


def test_no_message_ends_the_connection(
    rabbitmq_url: str, subscription: Subscription, adapter: Adapter
) -> None:
    """All are delivered on one channel, with what came before and after; what cannot be read says why."""
    for raw in MESSAGES.values():
        publish(rabbitmq_url, subscription, (raw, b"odd"), (headers_only([]), b"good"))
    sink = RecordingSink()
    adapter.open([subscription], sink)
    deliveries = sink.wait_for(2 * len(MESSAGES))
    assert {delivery.generation for delivery in deliveries} == {1}
    refused = {name for name, delivery in zip(MESSAGES, deliveries[::2], strict=True) if delivery.refusal}
    assert refused == UNREADABLE
    assert not [delivery for delivery in deliveries[1::2] if delivery.refusal]
    assert "year 57862" in str(
        deliveries[2 * list(MESSAGES).index("header: timestamp in milliseconds")].refusal
    )
    assert not adapter.acknowledge(deliveries)


def test_large_messages_are_no_other_matter(
    rabbitmq_url: str, subscription: Subscription, adapter: Adapter
) -> None:
    """A body of several frames takes pika's own way, with the same outcome."""
    body = b"x" * 300_000
    raw = MESSAGES["header: timestamp in milliseconds"]
    publish(rabbitmq_url, subscription, (raw, body), (headers_only([]), b"good"))
    sink = RecordingSink()
    adapter.open([subscription], sink)
    odd, good = sink.wait_for(2)
    assert odd.refusal is not None
    assert (odd.message.body, odd.message.raw, good.generation) == (body, raw, 1)


def test_dead_letters_keep_every_byte(
    rabbitmq_url: str, subscription: Subscription, adapter: Adapter
) -> None:
    """Each is buried, listed with its body and its reason, and replayed with the properties that it had.

    Where its table can be read, it tells with two headers more what it was published with: a replay has another exchange.
    """
    sent = {name.encode(): raw for name, raw in MESSAGES.items()}
    publish(rabbitmq_url, subscription, *((raw, body) for body, raw in sent.items()))
    sink = RecordingSink()
    adapter.open([subscription], sink)
    assert not adapter.dead_letter(
        [DeadLetterRequest(delivery, CAUSE) for delivery in sink.wait_for(len(sent))]
    )
    letters = list(adapter.dead_letters(subscription, 1000))
    assert [letter.message.body for letter in letters] == list(sent)
    assert {letter.message.headers[names.REASON] for letter in letters} == {"rejected"}
    adapter.close(grace=GRACE)
    keeper = adapter_on(rabbitmq_url)
    assert keeper.replay_dead_letters(subscription, [letter.id for letter in letters]) == len(sent)
    keeper.close(grace=GRACE)
    found = fetch(rabbitmq_url, f"{subscription.group}.{subscription.topic}")
    closed = {name.encode() for name in UNREADABLE - EXTENSIBLE | FULL}
    assert found == {
        body: persistent(raw) if body in closed else with_origin(persistent(raw), subscription)
        for body, raw in sent.items()
    }


def test_a_retry_comes_back_as_it_was(
    rabbitmq_url: str, subscription: Subscription, adapter: Adapter
) -> None:
    """Headers, id and content type are those of the first try, and the attempts count, whatever their size."""
    readable = {name: raw for name, raw in MESSAGES.items() if name not in UNREADABLE}
    publish(rabbitmq_url, subscription, *((raw, name.encode()) for name, raw in readable.items()))
    sink = RecordingSink()
    adapter.open([subscription], sink)
    first = sink.wait_for(len(readable))
    again = {**CAUSE, names.ATTEMPT: "2"}
    assert not adapter.retry(
        [RetryRequest(delivery, timedelta(milliseconds=50), again) for delivery in first]
    )
    second = {
        delivery.message.body: delivery.message
        for delivery in sink.wait_for(2 * len(readable))[len(readable) :]
    }
    for delivery in first:
        message = second[delivery.message.body]
        assert (message.attempt, message.message_id) == (2, delivery.message.message_id)
        assert own(message.headers) == own(delivery.message.headers), message.body


def own(headers: Any) -> dict[str, str]:
    """Return a producer's headers."""
    return {name: text for name, text in headers.items() if not name.startswith(names.PREFIX)}


def test_a_fraction_is_still_one_after_a_retry(
    rabbitmq_url: str, subscription: Subscription, adapter: Adapter
) -> None:
    """Values travel as the bytes they were: pika would cut a double down to an integer."""
    raw = MESSAGES["header: double"]
    publish(rabbitmq_url, subscription, (raw, b"x"))
    sink = RecordingSink()
    adapter.open([subscription], sink)
    assert not adapter.retry([RetryRequest(sink.wait_for(1)[0], timedelta(0), CAUSE)])
    kept = sink.wait_for(2)[1].message.raw
    assert kept is not None
    assert raw[6:] in kept


def test_our_headers_shrink_before_the_message_does(
    rabbitmq_url: str, subscription: Subscription, adapter: Adapter
) -> None:
    """Where both do not fit, the error's text is cut first and the letter stays readable to all."""
    pad = long_string(b"S", b"x" * 129_800)
    publish(rabbitmq_url, subscription, (headers_only([(b"pad", pad)]), b"x"))
    sink = RecordingSink()
    adapter.open([subscription], sink)
    assert not adapter.dead_letter([DeadLetterRequest(sink.wait_for(1)[0], CAUSE)])
    connection = connect(rabbitmq_url)
    _, properties, body = connection.channel().basic_get(f"{subscription.group}.{subscription.topic}.dead")
    connection.close()
    assert body == b"x"
    assert properties.headers["pad"] == "x" * 129_800
    assert len(properties.headers[names.ERROR_TEXT]) == 200
