"""Checks that small packed bodies of RocketMQ do not take a consumer's memory: what is unpacked is counted until it is settled."""

import zlib

from oncemq.testing.adapter_suite.bench import Bench
from oncemq_adapters.rocketmq.remoting.protocol.message_codec import LARGEST_BODY, MOST_UNPACKED
from support.rocketmq_queues import queue_console

COMPRESSED = 1


def assert_unpacked_bytes_are_counted(
    bench: Bench, url: str, count: int = 24, most: int = MOST_UNPACKED + LARGEST_BODY
) -> None:
    """Publish more than a consumer may hold; each comes once, and never more at a time than that.

    Args:
        bench: of the driver.
        url: of the name server.
        count: of messages, each as large as a body may be.
        most: bytes that may be unsettled at a time.
    """
    topic = bench.topic()
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    body = bytes(LARGEST_BODY - 1)
    with queue_console(url) as console:
        for number in range(count):
            packed = zlib.compress(body + bytes([number]))
            console.put_raw(f"{bench.harness.options['namespace']}%{topic.name}", 0, packed, COMPRESSED)
    member = bench.open(subscription)
    numbers: list[int] = []
    came = 0
    while len(numbers) < count:
        fresh = member.sink.wait_for(came + 1, bench.harness.patience)[came:]
        came += len(fresh)
        assert (came - len(numbers)) * LARGEST_BODY <= most
        for delivery in fresh:
            assert not member.adapter.acknowledge([delivery])
            numbers.append(delivery.message.body[-1])
    assert sorted(numbers) == list(range(count))
