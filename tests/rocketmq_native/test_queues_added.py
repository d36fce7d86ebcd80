"""Queues that are added while librocketmq consumes: it finds them by itself, and nothing in them is skipped."""

from oncemq.testing.adapter_suite.bench import Bench
from support.brokers.rocketmq_queues import queue_console

ADDED, EACH = range(4, 12), 10


def test_messages_in_added_queues_are_delivered(bench: Bench, rocketmq_native_url: str) -> None:
    """Every message of a queue that was added while the group ran is handled; librocketmq looks twice a minute."""
    topic = bench.topic()
    space = bench.harness.options["namespace"]
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    with queue_console(rocketmq_native_url) as console:
        console.set_queues(f"{space}%{topic.name}", 12)
        console.fill(f"{space}%{topic.name}", ADDED, b"new", EACH)
    settled = 0
    while settled < len(ADDED) * EACH:
        got = member.sink.wait_for(settled + 1, 90)[settled:]
        bench.settled(member.adapter.acknowledge(got))
        settled += len(got)
    assert settled == len(ADDED) * EACH
    bench.eventually(lambda: member.adapter.depth(subscription) == 0, "the group to have finished all")
