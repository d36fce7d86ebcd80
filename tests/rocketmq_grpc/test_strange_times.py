"""A message that the proxy cannot translate hides no other: it breaks off its answer, and says nothing of what was behind."""

from oncemq.message import headers as names
from oncemq.testing.adapter_suite.bench import Bench, bodies
from oncemq.testing.adapter_suite.harness import Topic
from support.brokers.rocketmq_grpc import ProxiedGrpc
from support.brokers.rocketmq_queues import queue_console

FAR_FUTURE = 1_000_000_000_000_000
"""Milliseconds; the year 33658, which no timestamp of the proxy's protocol can hold."""


def test_a_message_of_the_far_future_is_a_dead_letter_of_a_fifo_topic(
    bench: Bench, rocketmq_url: str
) -> None:
    """It cannot be delivered, and its queue would wait for it for ever; those behind it come in their order."""
    assert isinstance(bench.harness, ProxiedGrpc)
    topic = Topic(bench.topic("fifo").name, {"queues": 1, "fifo": True})
    subscription = bench.subscription(topic, in_flight=1)
    bench.prepare(subscription)
    name = f"{bench.harness.options['namespace']}%{topic.name}"
    with queue_console(rocketmq_url) as console:
        for number in range(3):
            born = FAR_FUTURE if number == 0 else None
            console.put_raw(name, 0, b"%d" % number, 0, born=born)
    member = bench.open(subscription)
    for count in (1, 2):
        bench.settled(member.adapter.acknowledge([bench.receive(member, count)[-1]]))
    assert bodies(member.sink.deliveries()) == [b"1", b"2"]
    letters = list(member.adapter.dead_letters(subscription, 10))
    assert [letter.message.body for letter in letters] == [b"0"]
    headers = letters[0].message.headers
    assert headers[names.REASON] == "undecodable"
    assert "cannot translate" in headers[names.ERROR_TEXT]


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
