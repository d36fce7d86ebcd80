"""A group that an administrator set to POP: a Java member that follows this is handed what an app that pulls would get, too."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from oncemq.contracts.adapter import Confirmed, Subscription
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rocketmq import RocketMQAdapter
from oncemq_adapters.rocketmq.remoting import pop_watch
from support.apps.program import eventually
from support.brokers.java_peer import JavaPeer, compiled, mqadmin
from support.brokers.rocketmq import adapter_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Group:
    """A group on a topic of its own, and an adapter for it."""

    def __init__(self, url: str) -> None:
        self.topic, self.name = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self.subscription = Subscription("c", self.topic, self.name, {"create": True, "queues": 2})
        self.sink = RecordingSink()
        self.adapter: RocketMQAdapter = adapter_on(url)
        self.adapter.prepare([self.subscription])

    def set_to(self, mode: str) -> None:
        """Have RocketMQ's tool set how the group receives the topic."""
        mqadmin(
            "setConsumeMode", "-c", "DefaultCluster", "-t", self.topic, "-g", self.name, "-m", mode, "-q", "0"
        )

    def publish(self, *bodies: str) -> None:
        """Publish messages of one key each."""
        messages = [OutgoingMessage(body.encode(), key=body) for body in bodies]
        answers = self.adapter.publish(self.topic, {}, messages)
        assert all(isinstance(answer, Confirmed) for answer in answers), answers


@pytest.fixture
def group(rocketmq_url: str) -> Iterator[Group]:
    """A group without members."""
    group = Group(rocketmq_url)
    yield group
    group.adapter.close(grace=timedelta(seconds=5))


def test_a_consumer_is_paused_while_its_group_is_set_to_pop(
    group: Group, rocketmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member in Java that follows the setting gets everything, and none of it comes twice; set to PULL, we go on."""
    monkeypatch.setattr(pop_watch, "LOOK_EVERY", 0.2)
    with capture_logs() as logged, compiled(tmp_path) as classes, JavaPeer(rocketmq_url, classes) as java:
        group.adapter.open([group.subscription], group.sink)
        group.set_to("POP")
        eventually(lambda: not group.adapter.health()[0].subscribed, "the pause")
        assert "is set to POP" in group.adapter.health()[0].detail
        group.adapter.resume("c")
        java.order("consume", group.name, group.topic, "pop")
        group.publish(*map(str, range(20)))
        java.wait_for(20)
        assert group.sink.deliveries() == []
        java.order("leave")
        group.set_to("PULL")
        eventually(lambda: group.adapter.health()[0].subscribed, "the end of the pause")
        group.publish("last")
        eventually(
            lambda: "last" in [each.message.body.decode() for each in group.sink.deliveries()], "the last one"
        )
    assert [entry["event"] for entry in logged] == [
        "consumer paused: its group is set to POP",
        "consumer goes on: its group is pulled from again",
    ]
