"""A consumer whose window is full asks for no messages, and still knows whether the proxy is there."""

from datetime import timedelta

from oncemq.testing.adapter_suite.bench import Bench, bodies
from oncemq_adapters.rocketmq.grpc.receiver import AT_ONCE
from oncemq_adapters.rocketmq_client.protocol import LARGEST_BODY
from support.brokers.rocketmq_memory import assert_unpacked_bytes_are_counted


def test_an_outage_is_noticed_with_a_full_window(bench: Bench) -> None:
    """Health says so and says when it is over; what is held stays ours, and the next message comes when it is settled."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic, in_flight=1))
    bench.publish(topic, b"first")
    held = bench.receive(member, 1)
    bench.settled(member.adapter.extend(held, timedelta(seconds=60)))
    bench.harness.stop()
    bench.eventually(lambda: not bench.subscribed(member), "health to notice the outage")
    bench.harness.start()
    bench.eventually(lambda: bench.subscribed(member), "the consumer to be subscribed again")
    bench.publish(topic, b"second")
    bench.settled(member.adapter.acknowledge(held))
    assert bodies(bench.receive(member, 2)) == [b"first", b"second"]


def test_unpacked_bytes_are_counted(bench: Bench, rocketmq_url: str) -> None:
    """What one answer may bring is held unpacked; more is received when that is settled."""
    assert_unpacked_bytes_are_counted(bench, rocketmq_url, count=48, most=AT_ONCE * LARGEST_BODY)
