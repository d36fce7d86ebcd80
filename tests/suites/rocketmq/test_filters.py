"""A topic filtered by an SQL92 expression over the remoting protocol, or by tags as Java's clients write them."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Confirmed, RetryRequest, Subscription
from oncemq.errors import BrokerRefused
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQAdapter
from support.brokers.rocketmq import adapter_on
from support.facts import facts_of


@pytest.fixture
def adapter(rocketmq_url: str) -> Iterator[RocketMQAdapter]:
    """An adapter in a namespace of the test's own."""
    adapter = adapter_on(rocketmq_url, namespace=f"t{uuid4().hex[:10]}")
    yield adapter
    adapter.close(grace=timedelta(seconds=5))


def publish(adapter: RocketMQAdapter, *messages: OutgoingMessage) -> None:
    """Publish to the test's topic."""
    assert all(isinstance(answer, Confirmed) for answer in adapter.publish("orders", {}, messages))


def test_an_expression_selects_by_properties(adapter: RocketMQAdapter) -> None:
    """Numbers and texts; a message that was selected comes again as a retry."""
    options = {"queues": 1, "filter": "amount > 5 AND region = 'eu'"}
    sink = RecordingSink()
    adapter.open([Subscription("c", "orders", "paid", options)], sink)
    sent = [("1", "eu"), ("7", "us"), ("7", "eu"), ("9", "eu")]
    headers = [{"amount": amount, "region": region} for amount, region in sent]
    publish(adapter, *[OutgoingMessage(b"%d" % at, each) for at, each in enumerate(headers)])
    deliveries = sink.wait_for(2)
    assert sink.bodies() == [b"2", b"3"]
    assert not adapter.retry([RetryRequest(deliveries[0], timedelta(0), {})])
    assert sink.wait_for(3)[2].message.body == b"2"
    assert not adapter.acknowledge(sink.deliveries()[1:])


def test_tags_may_be_one_expression(adapter: RocketMQAdapter) -> None:
    """`TagA || TagB`, as in Java's subscribe()."""
    sink = RecordingSink()
    adapter.open([Subscription("c", "orders", "paid", {"queues": 1, "tags": "paid || sent"})], sink)
    for tag in ("new", "paid", "lost", "sent"):
        publish(adapter, OutgoingMessage(tag.encode(), {"tags": tag}))
    sink.wait_for(2)
    assert sink.bodies() == [b"paid", b"sent"]


def test_a_wrong_expression_is_refused_at_the_start_and_by_check(adapter: RocketMQAdapter) -> None:
    """In words, with the place in the file; otherwise the consumer would only receive nothing."""
    options = {"filter": "amount >", "create": True}
    with pytest.raises(BrokerRefused, match="cannot filter topic 'orders' by 'amount >'"):
        adapter.open([Subscription("c", "orders", "paid", options)], RecordingSink())
    found = list(adapter.examine(facts_of("orders", "paid", options=options)))
    assert [problem.where for problem in found] == ["topic.filter"]
