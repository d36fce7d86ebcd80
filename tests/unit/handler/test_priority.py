"""`priority=`: carried to the broker as a header, and refused in words where nothing sorts by it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oncemq import App, ConfigError, Publisher
from oncemq.message.envelope import OutgoingMessage
from oncemq.message.headers import PRIORITY
from oncemq.testing import TestApp
from oncemq_adapters.rabbitmq.messages.properties import for_publishing


def shop(broker: str = "amqp://host", **options: Any) -> App:
    """Return an app that publishes a receipt of each order, with the order's priority."""
    app = App("shop", brokers={"main": broker}, database="sqlite:///unused.db")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"])
    app.topic("receipts", key="body.id", **options)

    @app.consumer(topic="orders")
    def paid(order: dict[str, Any], publisher: Publisher) -> None:
        publisher.publish("receipts", {"id": order["id"]}, priority=order.get("priority"))

    return app


SORTED = {"max_priority": 10, "queue_type": "classic"}


def test_a_priority_is_kept_with_its_message() -> None:
    """In the outbox too, where headers are stored; without one there is no header."""
    with TestApp(shop(**SORTED)) as app:
        app.publish("orders", {"id": "1", "priority": 7})
        app.publish("orders", {"id": "2"})
        urgent, usual = app.published("receipts")
    assert (urgent.headers[PRIORITY], PRIORITY in usual.headers) == ("7", False)


@pytest.mark.parametrize("priority", [-1, 11, True, "5", 1.0])
def test_a_priority_beyond_the_topics_is_refused(priority: Any) -> None:
    """In words, and before anything is stored."""
    with TestApp(shop(**SORTED)) as app:
        outcome = app.publish("orders", {"id": "1", "priority": priority})
        assert f"priority={priority!r} for topic 'receipts': write a whole number from 0 to 10" in str(
            outcome.error
        )
        assert app.published("receipts") == []


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        ("amqp://host", "which has no priorities: write max_priority: 10 at the topic"),
        ("rocketmq://host", "but its broker 'main' has no priorities: leave it out"),
        ("embedded://", "but its broker 'main' has no priorities: leave it out"),
    ],
)
def test_a_priority_that_nothing_sorts_by_is_refused(broker: str, said: str) -> None:
    """The message would otherwise only seem urgent."""
    with TestApp(shop(broker)) as app:
        assert said in str(app.publish("orders", {"id": "1", "priority": 5}).error)


@pytest.mark.parametrize(
    ("broker", "options", "said"),
    [
        ("amqp://host", {"max_priority": 5}, "a quorum queue has no priorities in RabbitMQ 3, and two levels in RabbitMQ 4"),
        ("amqp://host", {**SORTED, "partitions": 4}, "partitions keep the order of each key"),
        ("amqp://host", {**SORTED, "stream": "s"}, "a stream is read in the order in which it was written"),
        ("amqp://host", {**SORTED, "max_priority": 256}, "write a whole number from 1 to 255"),
        ("rocketmq://host", SORTED, "RocketMQ has no priorities: give urgent messages a topic"),
        ("kafka://host", SORTED, "Kafka has no priorities: give urgent messages a topic"),
    ],
)  # fmt: skip
def test_priorities_are_refused_where_no_queue_keeps_them(
    broker: str, options: dict[str, Any], said: str
) -> None:
    """At the topic's line, with what to write instead."""
    app = shop(broker, **options)
    app.consumer(topic="receipts", name="mail", strategies=["none"])(lambda receipt: None)
    with pytest.raises(ConfigError) as caught:
        app.plan()
    found = "\n".join(map(str, caught.value.problems))
    assert said in found
    assert Path(__file__).name in found


def test_a_consumer_that_depends_on_the_order_is_warned_of_priorities() -> None:
    """Urgent messages overtake earlier ones of their key."""
    app = shop(**SORTED)
    app.consumer(
        topic="receipts", name="mail", strategies=["unique_key"], identity="message_id", on_retry="hold_key"
    )(lambda receipt: None)
    assert any("overtake earlier ones of their key" in warning for warning in app.check())


@pytest.mark.parametrize("text", ["", "x", "-1", "256", "²", "1" * 5000])
def test_a_header_that_is_no_priority_is_none(text: str) -> None:
    """Such as one that a file of `oncemq publish --envelope` claims."""
    message = OutgoingMessage(b"x", {PRIORITY: text})
    assert for_publishing(message, datetime.now(UTC), "id", "app").priority is None
