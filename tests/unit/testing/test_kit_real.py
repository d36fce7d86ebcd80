"""The test kit on real servers leaves nothing behind."""

from typing import Any
from uuid import uuid4

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from oncemq import App
from oncemq.contracts.broker_queries import names_of
from oncemq.testing import TestApp

pytestmark = pytest.mark.server


def _exists(url: str, queue: str) -> bool:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        connection.channel().queue_declare(queue, passive=True)
    except ChannelClosedByBroker:
        return False
    finally:
        connection.close()
    return True


def test_the_queues_of_a_test_are_removed(rabbitmq_url: str) -> None:
    """Those of its groups, with retries and dead letters; they had names of their own."""

    def handle(_: dict[str, Any]) -> None:
        raise ValueError

    app = App("kit", brokers={"main": rabbitmq_url}, defaults={"retry": {"attempts": 2}})
    topic = f"orders.{uuid4().hex[:8]}"
    app.topic(topic, key="body.id", strategies=["none"])
    app.consumer(topic=topic, effects="external")(handle)
    with TestApp(app, real=True) as kit:
        assert kit.publish(topic, {"id": "a"}).retried
        (consumer,) = kit._running.consumers
        private = names_of(kit._adapters["main"], "main", consumer.subscription)
        assert private is not None
        queues = [name.removeprefix("queue ") for name in private.names]
        there = [queue for queue in queues if _exists(rabbitmq_url, queue)]
        assert there
    assert [queue for queue in there if _exists(rabbitmq_url, queue)] == []
