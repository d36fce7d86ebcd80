"""With `history_key` attempts count on every broker, and those that a stranger claims do not."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties

from oncemq.message import headers as names
from oncemq.message.signed_history import HistoryKeys
from oncemq_adapters.rocketmq import RocketMQAdapter
from support.apps.program import eventually
from support.brokers.rabbitmq import connect
from support.engine import running
from support.hostile.brokers import SCOPE, HostileBroker, HostileEmbedded, HostileRabbitMQ, HostileRocketMQ
from support.hostile.journey import always_failing, assert_signed_attempts_count

KEYS = HistoryKeys("k" * 32)


def embedded(folder: Path, _: Callable[[str], str]) -> HostileBroker:
    """Return the embedded broker."""
    return HostileEmbedded(folder)


def rabbitmq(_: Path, url_of: Callable[[str], str]) -> HostileBroker:
    """Return RabbitMQ."""
    return HostileRabbitMQ(url_of("rabbitmq_url"))


def rocketmq(_: Path, url_of: Callable[[str], str]) -> HostileBroker:
    """Return RocketMQ."""
    url = url_of("rocketmq_url")
    return HostileRocketMQ(url, lambda: RocketMQAdapter.build(url, {}, SCOPE))


@pytest.mark.parametrize("make", [embedded, rabbitmq, rocketmq])
def test_signed_attempts_count(make: Any, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A message that always fails is tried three times, and then it is a dead letter."""
    assert_signed_attempts_count(make(tmp_path, request.getfixturevalue), tmp_path)


def test_attempts_that_a_stranger_claims_do_not_count(rabbitmq_url: str, tmp_path: Path) -> None:
    """A message in the group's own queue that claims three tries is tried, as any new one."""
    broker = HostileRabbitMQ(rabbitmq_url)
    seen: list[int] = []
    app, plan = always_failing(broker, tmp_path, seen)
    publisher = broker.adapter()
    publisher.prepare([plan.subscription])
    forge(rabbitmq_url, f"{plan.subscription.group}.{broker.topic}")
    with running(app):
        eventually(lambda: list(publisher.dead_letters(plan.subscription, 2)), "the dead letter", 30)
    publisher.close(grace=timedelta(seconds=1))
    broker.close()
    assert seen == [1, 2, 3]


def forge(url: str, queue: str) -> None:
    """Publish to a group's queue as its own retries come, with as many attempts as are allowed."""
    connection = connect(url)
    properties = BasicProperties(headers={names.ATTEMPT: "3", names.KEY: "k"})
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", queue, b'{"id": "1", "key": "k"}', properties, mandatory=True)
    connection.close()
