"""The message trace: mqadmin finds in it which group consumed a message, and whether that succeeded."""

import re
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from oncemq.contracts.adapter import Confirmed, RetryRequest, Subscription
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQAdapter
from support.brokers.java_peer import mqadmin
from support.brokers.rocketmq import adapter_on
from support.facts import facts_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def adapter(rocketmq_url: str) -> Iterator[RocketMQAdapter]:
    """An adapter whose consumption is traced to a topic of its own."""
    adapter = adapter_on(rocketmq_url, trace=f"trace-{uuid4().hex[:8]}")
    yield adapter
    adapter.close(grace=timedelta(seconds=5))


def test_mqadmin_finds_who_consumed_a_message(adapter: RocketMQAdapter) -> None:
    """The first try failed, the second one did not; both are rows of our group."""
    topic, group, trace = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}", adapter._address.trace
    facts = facts_of(topic, group, options={"create": True})
    (problem,) = [found for found in adapter.examine(facts) if found.where == "broker.trace"]
    assert "nothing is traced" in problem.text
    adapter.prepare([Subscription("trace", trace, f"{group}t", {"queues": 1})])
    assert [found for found in adapter.examine(facts) if found.where == "broker.trace"] == []
    sink = RecordingSink()
    adapter.open([Subscription("c", topic, group, {"queues": 1})], sink)
    answers = adapter.publish(topic, {}, [OutgoingMessage(b"x", key="k1")])
    assert isinstance(answers[0], Confirmed)
    (first,) = sink.wait_for(1)
    assert not adapter.retry([RetryRequest(first, timedelta(0), {})])
    assert not adapter.acknowledge(sink.wait_for(2)[1:])
    assert adapter._trace is not None
    adapter._trace.stop()
    named = first.token.stored.properties["UNIQ_KEY"]
    said = mqadmin("queryMsgTraceById", "-i", named, "-t", trace)
    rows = re.findall(rf"^Sub +{group} .*$", said, re.MULTILINE)
    assert [re.search(r"success|failed", row)[0] for row in rows] == ["failed", "success"], said  # type: ignore[index]
