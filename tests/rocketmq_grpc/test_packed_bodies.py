"""Bodies that producers of other drivers pack, through the proxy: it says only that they are packed, not how."""

import zlib
from collections.abc import Callable
from datetime import timedelta

import lz4.frame
import pytest
import zstandard

from oncemq.contracts.adapter import DeadLetterRequest
from oncemq.message import headers as names
from oncemq.testing.adapter_suite.bench import Bench, later
from support.brokers.rocketmq_queues import queue_console

COMPRESSED, KIND_LZ4, KIND_ZSTD, KIND_ZLIB = 1, 1 << 8, 2 << 8, 3 << 8
PLAIN = b'{"order": 1}' * 1000
PACKED: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "zlib of older clients": (zlib.compress, COMPRESSED),
    "zlib": (zlib.compress, COMPRESSED | KIND_ZLIB),
    "LZ4": (lz4.frame.compress, COMPRESSED | KIND_LZ4),
    "ZSTD": (zstandard.ZstdCompressor().compress, COMPRESSED | KIND_ZSTD),
}


@pytest.mark.parametrize("kind", PACKED)
def test_packed_bodies_are_unpacked_and_copied(bench: Bench, rocketmq_url: str, kind: str) -> None:
    """A handler, a retry and a dead letter have the body as its producer wrote it."""
    pack, flags = PACKED[kind]
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    with queue_console(rocketmq_url) as console:
        console.put_raw(f"{bench.harness.options['namespace']}%{topic.name}", 0, pack(PLAIN), flags)
    (first,) = bench.receive(member, 1)
    bench.settled(member.adapter.retry([later(first, 0)]))
    *_, again = bench.receive(member, 2)
    bench.settled(member.adapter.dead_letter([DeadLetterRequest(again, {names.REASON: "rejected"})]))
    (letter,) = member.adapter.dead_letters(subscription, 10)
    assert [first.message.body, again.message.body, letter.message.body] == [PLAIN] * 3
    assert names.CONTENT_ENCODING not in first.message.headers


def test_what_is_packed_in_an_unknown_way_holds_up_no_other(bench: Bench, rocketmq_url: str) -> None:
    """It arrives as it is, with an encoding that no reader knows, so that it becomes a dead letter byte by byte."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic))
    with queue_console(rocketmq_url) as console:
        name = f"{bench.harness.options['namespace']}%{topic.name}"
        console.put_raw(name, 0, b"no zlib at all", COMPRESSED)
        console.put_raw(name, 0, b"plain", 0)
    odd, plain = sorted(bench.receive(member, 2), key=lambda delivery: delivery.message.body)
    assert (odd.message.body, plain.message.body) == (b"no zlib at all", b"plain")
    assert "cannot be unpacked" in odd.message.headers["rocketmq-trouble"]


def test_pause_beyond_a_day_is_a_refusal_that_names_it(bench: Bench) -> None:
    """The proxy's longest delay is 24 hours by default: just below it is taken, above it refused with the reason."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic))
    bench.publish(topic, b"below", b"above")
    above, below = sorted(bench.receive(member, 2), key=lambda delivery: delivery.message.body)
    day = timedelta(hours=24).total_seconds()
    (failure,) = member.adapter.retry([later(below, day - 60), later(above, day + 60)])
    assert failure.delivery is above
    assert "delay time" in str(failure.error)
