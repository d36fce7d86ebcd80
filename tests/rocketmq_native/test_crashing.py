"""Messages of which librocketmq dies: they are handled without it, and the group goes on behind them."""

import zlib

import pytest

from oncemq.testing.adapter_suite.bench import Bench
from support.rocketmq_queues import queue_console

COMPRESSED, LZ4, ZSTD = 1, 1 << 8, 2 << 8


@pytest.mark.parametrize(
    ("body", "flags"),
    [
        (b"no zlib at all", COMPRESSED),
        (zlib.compress(b"cut off")[:-6], COMPRESSED),
        (b"\x04\x22\x4d\x18 perhaps LZ4", COMPRESSED | LZ4),
        (b"\x28\xb5\x2f\xfd perhaps ZSTD", COMPRESSED | ZSTD),
    ],
    ids=["no-zlib", "cut-off", "lz4", "zstd"],
)
def test_body_that_kills_the_library_does_not_stop_the_group(
    bench: Bench, rocketmq_native_url: str, body: bytes, flags: int
) -> None:
    """It is delivered with the reason why it cannot be read, and its neighbours are delivered as always."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    name = f"{bench.harness.options['namespace']}%{topic.name}"
    with queue_console(rocketmq_native_url) as console:
        console.fill(name, [0], b"before", 3)
        console.put_raw(name, 0, body, flags)
        console.fill(name, [0, 1], b"behind", 3)
    member = bench.open(subscription)
    settled = 0
    bodies: list[bytes] = []
    while settled < 10:
        got = member.sink.wait_for(settled + 1, bench.harness.patience)[settled:]
        failed = {id(one.delivery) for one in member.adapter.acknowledge(got)}
        bodies += [one.message.body for one in got if id(one) not in failed]
        settled += len(got)
    bench.eventually(lambda: member.adapter.depth(subscription) == 0, "the group to be at the end")
    assert set(bodies) == {b"before", b"behind", body}
    bench.publish(topic, b"next")
    assert member.sink.wait_for(settled + 1, bench.harness.patience)[-1].message.body == b"next"
