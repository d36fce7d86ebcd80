"""A message that the proxy cannot translate hides no other: it breaks off its answer, and says nothing of what was behind."""

from oncemq.testing.adapter_suite.bench import Bench, bodies
from oncemq.testing.adapter_suite.harness import Topic
from support.brokers.rocketmq_grpc import ProxiedGrpc
from support.brokers.rocketmq_queues import queue_console

FAR_FUTURE = 1_000_000_000_000_000
"""Milliseconds; the year 33658, which no timestamp of the proxy's protocol can hold."""


def test_a_message_of_the_far_future_hides_none_behind_it(bench: Bench, rocketmq_url: str) -> None:
    """Those behind it come one lease later, and not only when the broker has given it up."""
    assert isinstance(bench.harness, ProxiedGrpc)
    topic = Topic(bench.topic().name, {"queues": 1, "message_type": "MIXED"})
    subscription = bench.subscription(topic)
    bench.prepare(subscription)
    name = f"{bench.harness.options['namespace']}%{topic.name}"
    with queue_console(rocketmq_url) as console:
        for number in range(6):
            born = FAR_FUTURE if number == 0 else None
            console.put_raw(name, 0, b"%d" % number, 0, born=born)
    member = bench.open(subscription)
    taken = bench.receive(member, 5)
    assert sorted(bodies(taken)) == [b"1", b"2", b"3", b"4", b"5"]
    bench.settled(member.adapter.acknowledge(taken))
