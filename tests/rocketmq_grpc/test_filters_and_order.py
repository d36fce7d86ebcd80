"""Tags, SQL92 filters, the order of keys and fifo groups, through the real proxy."""

from dataclasses import replace
from datetime import timedelta
from time import monotonic

import pytest

from oncemq.contracts.adapter import RetryRequest
from oncemq.errors import BrokerRefused
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.adapter_suite import Topic
from oncemq.testing.adapter_suite.bench import Bench, bodies, later, numbered
from oncemq_adapters.rocketmq.grpc.groups import AddedQueues
from oncemq_adapters.rocketmq.grpc.requests import Sending
from oncemq_adapters.rocketmq.grpc.topics import parse_proxied
from oncemq_adapters.rocketmq_client.admin import committed_offset
from services.servers.rocketmq import RocketMQ
from support.apps.subscribed_routes import assert_only_routed_messages_arrive
from support.brokers.rocketmq_queues import queue_console
from support.servers import url_from


def with_options(topic: Topic, **options: object) -> Topic:
    """Return the topic with more options."""
    return topic._replace(options={**topic.options, **options})


def test_tags_select(bench: Bench) -> None:
    """Only messages with one of the tags come."""
    topic = with_options(bench.topic(), tags=["paid", "sent"])
    member = bench.open(bench.subscription(topic))
    bench.publish(topic, *[OutgoingMessage(tag.encode(), {"tags": tag}) for tag in ("paid", "new", "sent")])
    received = bench.receive(member, 2)
    assert sorted(bodies(received)) == [b"paid", b"sent"]
    assert {delivery.message.headers["tags"] for delivery in received} == {"paid", "sent"}
    bench.nothing_more(member, 2)


def test_routes_alone_are_subscribed_to(bench: Bench) -> None:
    """`otherwise: unsubscribed` has the proxy keep back what no route takes."""
    assert_only_routed_messages_arrive(bench, url_from(f"{RocketMQ.variable}_GRPC"))


def test_an_expression_selects(bench: Bench) -> None:
    """Only messages whose properties the SQL92 expression selects come."""
    topic = with_options(bench.topic(), filter="amount > 10 AND region = 'north'")
    member = bench.open(bench.subscription(topic))
    for amount, region in ((5, "north"), (50, "north"), (50, "south")):
        bench.publish(topic, OutgoingMessage(b"%d" % amount, {"amount": str(amount), "region": region}))
    assert bodies(bench.receive(member, 1)) == [b"50"]
    bench.nothing_more(member, 1)


def test_several_keys_keep_their_order(bench: Bench) -> None:
    """`keys[0]` is what the producer wrote first, whatever a set would make of it."""
    topic = bench.topic()
    member = bench.open(bench.subscription(topic))
    keys = tuple(f"key-{number}" for number in (7, 3, 9, 1))
    name = f"{bench.harness.options['namespace']}%{topic.name}"
    (error,) = member.adapter._outbox.send([Sending(name, b"x", {}, "1" * 32, keys)])
    assert error is None
    assert bench.receive(member, 1)[0].message.keys == keys


@pytest.fixture
def fifo(bench: Bench) -> Topic:
    """Return a fifo topic."""
    topic = with_options(bench.topic("fifo"), fifo=True)
    return topic._replace(
        options={name: option for name, option in topic.options.items() if name != "message_type"}
    )


def test_a_fifo_group_waits_for_each_other(bench: Bench, fifo: Topic) -> None:
    """Messages of a key come in order, and a retry is not overtaken."""
    subscription = bench.subscription(fifo, in_flight=1)
    member = bench.open(subscription)
    bench.publish(fifo, *[OutgoingMessage(body, key="one") for body in numbered(3)])
    (first,) = bench.receive(member, 1)
    started = monotonic()
    bench.settled(member.adapter.retry([later(first, 3)]))
    (_, again) = bench.receive(member, 2)
    assert again.message.body == first.message.body
    assert again.message.attempt == 2
    assert monotonic() - started > 2.9
    bench.settled(member.adapter.acknowledge([again]))
    for count in (3, 4):
        bench.settled(member.adapter.acknowledge([bench.receive(member, count)[-1]]))
    assert bodies(member.sink.deliveries())[1:] == numbered(3)


def test_a_fifo_message_needs_a_key(bench: Bench, fifo: Topic) -> None:
    """Without one no one knows its place."""
    bench.prepare(bench.subscription(fifo))
    (answer,) = bench.publisher().publish(fifo.name, fifo.options, [OutgoingMessage(b"x")])
    assert "needs a key" in str(answer.error)


def test_a_fifo_topic_and_a_plain_group_do_not_mix(bench: Bench, fifo: Topic) -> None:
    """A group that is not orderly is refused for a fifo topic, with the command that changes it."""
    plain = bench.subscription(bench.topic())
    bench.prepare(plain)
    with pytest.raises(BrokerRefused, match=r"not orderly.*updateSubGroup"):
        bench.prepare(replace(plain, topic=fifo.name, options=fifo.options))


def test_what_gRPC_cannot_do_is_said(bench: Bench) -> None:
    """Without name servers a topic is not made, and dead letters are not listed: the error says what to write."""
    adapter = bench.adopt(bench.harness.make_adapter(name_servers=[]))
    subscription = bench.subscription(bench.topic())
    with pytest.raises(BrokerRefused, match=r"mqadmin updateTopic.*name_servers"):
        adapter.prepare([subscription])
    with pytest.raises(BrokerRefused, match="name_servers"):
        list(adapter.dead_letters(subscription, 10))


def test_a_pause_gives_back_what_was_asked_for_before(bench: Bench) -> None:
    """What comes in answer to a question from before the pause goes to others, not only when its lease ends."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    member.adapter.pause(subscription.consumer)
    bench.publish(topic, *numbered(3))
    other = bench.open(subscription)
    started = monotonic()
    assert sorted(bodies(bench.receive(other, 3))) == numbered(3)
    assert timedelta(seconds=monotonic() - started) < timedelta(seconds=7)
    bench.nothing_more(member, 0)


def test_queues_added_while_a_group_runs_begin_at_their_beginning(bench: Bench, rocketmq_url: str) -> None:
    """`start: last` does not hold in queues that were added: a proxy would begin at the end of what is on disk."""
    topic = bench.topic()
    late = replace(bench.subscription(topic), options={**topic.options, "start": "last"})
    bench.prepare(late)
    space = bench.harness.options["namespace"]
    name, group = f"{space}%{topic.name}", f"{space}%{late.group}"
    with queue_console(rocketmq_url) as console:
        console.set_queues(name, 6)
        console.fill(name, (4, 5), b"new")
        parsed = parse_proxied(topic.name, late.options, space)
        AddedQueues(console.desk, [(parsed, group)]).look()
        (broker,) = console.desk.routes.brokers()
        connection = console.desk.brokers.get(broker)
        assert [committed_offset(connection, group, name, number) for number in (4, 5)] == [0, 0]


def test_pause_that_the_proxy_refuses_delays_no_other(bench: Bench) -> None:
    """A retry in 25 hours is refused by itself, and one beside it comes back."""
    topic = bench.topic()
    subscription = bench.subscription(topic)
    member = bench.open(subscription)
    bench.publish(topic, OutgoingMessage(b"late"), OutgoingMessage(b"soon"))
    late, soon = sorted(bench.receive(member, 2), key=lambda delivery: delivery.message.body)
    (failed,) = member.adapter.retry(
        [RetryRequest(late, timedelta(hours=25), {}), RetryRequest(soon, timedelta(0), {})]
    )
    assert failed.delivery is late
    assert isinstance(failed.error, BrokerRefused)
    assert member.sink.wait_for(3, bench.harness.patience)[-1].message.body == b"soon"
