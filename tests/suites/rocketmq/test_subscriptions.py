"""Members of one group that subscribe differently lose each other's messages: seen from the broker, said and refused."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from oncemq.common.problems import Severity
from oncemq.contracts.adapter import Subscription
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq.remoting.adapter import RocketMQAdapter
from support.brokers.rocketmq import adapter_on
from support.facts import facts_of


class Group:
    """One group, and adapters that are closed in the end."""

    def __init__(self, url: str) -> None:
        self.name = f"g{uuid4().hex[:8]}"
        self.topics = [f"t{uuid4().hex[:8]}" for _ in range(2)]
        self._url = url
        self._adapters: list[RocketMQAdapter] = []

    def subscription(self, number: int = 0, **options: Any) -> Subscription:
        """Return one of the group's on one of the topics."""
        return Subscription("c", self.topics[number], self.name, {"create": True, **options})

    def adapter(self, **options: Any) -> RocketMQAdapter:
        """Return a new one that consumes nothing."""
        adapter = adapter_on(self._url, **options)
        self._adapters.append(adapter)
        return adapter

    def member(self, subscription: Subscription) -> RocketMQAdapter:
        """Return one that consumes."""
        adapter = self.adapter()
        adapter.open([subscription], RecordingSink())
        return adapter

    def close(self) -> None:
        """Close all."""
        for adapter in self._adapters:
            adapter.close(grace=timedelta(seconds=1))


@pytest.fixture
def group(rocketmq_url: str) -> Iterator[Group]:
    """A group on the shared server."""
    group = Group(rocketmq_url)
    yield group
    group.close()


@pytest.mark.parametrize(
    ("number", "theirs", "ours"),
    [(1, {}, {}), (0, {"tags": ["a", "b"]}, {"tags": ["a"]})],
    ids=["topics", "tags"],
)
def test_another_subscription_is_found(
    group: Group, number: int, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    """The check refuses, and names the member, its address and both subscriptions; a start warns of the same."""
    group.member(group.subscription(number, **theirs))
    wanted = group.subscription(0, **ours)
    adapter = group.adapter()
    adapter.prepare([wanted])
    [problem] = adapter.examine(facts_of(wanted.topic, wanted.group, options=wanted.options))
    assert problem.severity is Severity.ERROR
    for part in ("@tests-", "127.0.0.1:", *group.topics[: number + 1]):
        assert part in problem.text
    assert adapter.concerns([wanted]) == [problem.text]
    started = group.member(wanted)
    assert problem.text in started.concerns([wanted])


def test_members_that_subscribe_alike_are_no_problem(group: Group) -> None:
    """Order and spelling of tags make no difference."""
    group.member(group.subscription(0, tags=["a", "b"]))
    second = group.subscription(0, tags=["b", "a"])
    started = group.member(second)
    assert started.concerns([second]) == []
    assert list(started.examine(facts_of(second.topic, second.group, options=second.options))) == []


def test_mixed_subscriptions_can_be_allowed(group: Group) -> None:
    """With the option it is a warning: for a deployment that changes what a group subscribes to."""
    group.member(group.subscription(1))
    wanted = group.subscription(0)
    adapter = group.adapter(mixed_subscriptions=True)
    adapter.prepare([wanted])
    [problem] = adapter.examine(facts_of(wanted.topic, wanted.group, options=wanted.options))
    assert problem.severity is Severity.WARNING


def test_all_topics_of_a_group_are_one_subscription(group: Group) -> None:
    """Two consumers of an app in one group are one member; neither is another subscription."""
    both = [group.subscription(0), Subscription("d", group.topics[1], group.name, {"create": True})]
    adapter = group.adapter()
    adapter.open(both, RecordingSink())
    looking = group.adapter()
    looking.prepare(both)
    facts = [
        facts_of(
            subscription.topic, subscription.group, name=subscription.consumer, options=subscription.options
        )
        for subscription in both
    ]
    for each in facts:
        list(looking.check(each))
    assert [problem for each in facts for problem in looking.examine(each)] == []
