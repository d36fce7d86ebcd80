"""A group that is set to POP: brokers hand its messages out to members that follow this, and an app that pulls keeps away."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from oncemq.contracts.adapter import Confirmed, Subscription
from oncemq.errors import BrokerRefused
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQAdapter
from support.apps.program import eventually
from support.brokers.rocketmq import adapter_on
from support.facts import facts_of

SET_MODE = 401


class Group:
    """A group on a topic of its own, and an adapter for it."""

    def __init__(self, url: str, name: str) -> None:
        self.topic, self.name = f"{name}-topic", name
        self.subscription = Subscription("c", self.topic, name, {"create": True, "queues": 1})
        self.sink = RecordingSink()
        self.adapter: RocketMQAdapter = adapter_on(url)
        self.adapter.prepare([self.subscription])

    def set_to(self, mode: str) -> None:
        """Set how the group receives the topic, as `mqadmin setConsumeMode` does."""
        wanted = {"topic": self.topic, "consumerGroup": self.name, "mode": mode, "popShareQueueNum": 0}
        broker = self.adapter._opened_desk().brokers.get("broker-a")
        broker.call(SET_MODE, {}, json.dumps(wanted).encode())

    def look(self) -> None:
        """Look at the mode now."""
        watch = self.adapter._pop_watch
        assert watch is not None
        watch.look()

    def publish(self, body: str) -> None:
        """Publish a message."""
        answers = self.adapter.publish(self.topic, {}, [OutgoingMessage(body.encode(), key=body)])
        assert all(isinstance(answer, Confirmed) for answer in answers), answers


@pytest.fixture
def group(rocketmq_url: str, fresh: str) -> Iterator[Group]:
    """A group without members."""
    group = Group(rocketmq_url, fresh)
    yield group
    group.adapter.close(grace=timedelta(seconds=5))


def test_a_group_that_is_set_to_pop_is_refused(group: Group) -> None:
    """At the start and by `check --connect`, with the command that sets it back."""
    group.set_to("POP")
    said = (
        f"group '{group.name}' is set to POP for topic '{group.topic}' on broker-a, but this app pulls: each message would be "
        "consumed by a member that follows that setting, and by this app"
    )
    advice = f"mqadmin setConsumeMode -c <cluster> -t {group.topic} -g {group.name} -m PULL"
    (problem,) = group.adapter.examine(facts_of(group.topic, group.name, options=group.subscription.options))
    assert problem.text == said
    assert advice in problem.advice
    with pytest.raises(BrokerRefused) as refused:
        group.adapter.open([group.subscription], group.sink)
    assert said in str(refused.value)
    assert advice in str(refused.value)


def test_the_end_of_another_pause_is_not_the_end_of_this_one(group: Group) -> None:
    """A consumer that an operator resumes stays paused until its group is set to PULL, and the other way round."""
    group.adapter.open([group.subscription], group.sink)
    group.set_to("POP")
    group.look()
    (health,) = group.adapter.health()
    assert not health.subscribed
    assert "is set to POP" in health.detail
    group.adapter.pause("c")
    group.adapter.resume("c")
    assert [window.paused for member in group.adapter._members for window in member.windows] == [True]
    group.adapter.pause("c")
    group.set_to("PULL")
    group.look()
    assert [window.paused for member in group.adapter._members for window in member.windows] == [True]
    group.adapter.resume("c")
    group.publish("k")
    (delivery,) = group.sink.wait_for(1)
    assert delivery.message.body == b"k"
    eventually(lambda: group.adapter.health()[0].subscribed, "a healthy member")
