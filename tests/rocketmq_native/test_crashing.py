"""Messages of which librocketmq dies: they are handled without it, and the group goes on behind them."""

import zlib

import pytest

from oncemq.testing.adapter_suite.bench import Bench
from oncemq_adapters.rocketmq.native.member import Member
from support.brokers.rocketmq_memory import assert_unpacked_bytes_are_counted
from support.brokers.rocketmq_queues import queue_console

COMPRESSED, LZ4, ZSTD = 1, 1 << 8, 2 << 8


@pytest.mark.timeout(400)  # a broker may list the dead process for two minutes: the harness has that patience
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
    came = 0
    bodies: list[bytes] = []
    while len(bodies) < 10:
        got = member.sink.wait_for(came + 1, bench.harness.patience)[came:]
        void = {id(failure.delivery) for failure in member.adapter.acknowledge(got)}
        bodies += [delivery.message.body for delivery in got if id(delivery) not in void]
        came += len(got)
    bench.eventually(lambda: member.adapter.depth(subscription) == 0, "the group to be at the end")
    assert set(bodies) == {b"before", b"behind", body}
    bench.publish(topic, b"next")
    assert member.sink.wait_for(came + 1, bench.harness.patience)[-1].message.body == b"next"


def test_library_that_crashes_before_it_has_joined_does_not_block_the_start(
    bench: Bench, rocketmq_native_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`open` returns when messages are handled without it: nothing settles them before."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    name = f"{bench.harness.options['namespace']}%{topic.name}"
    with queue_console(rocketmq_native_url) as console:
        console.put_raw(name, 0, b"no zlib at all", COMPRESSED)
    listed = Member._listed
    monkeypatch.setattr(Member, "_listed", lambda member: listed(member) if member._crashes >= 2 else ())
    member = bench.open(subscription)
    got = member.sink.wait_for(1, bench.harness.patience)
    assert not member.adapter.acknowledge(got)
    bench.eventually(lambda: member.adapter.depth(subscription) == 0, "the group to be at the end")


def test_unpacked_bytes_are_counted(bench: Bench, rocketmq_native_url: str) -> None:
    """Small packed bodies are held unpacked up to 64 MiB; the rest waits on the broker."""
    assert_unpacked_bytes_are_counted(bench, rocketmq_native_url)
