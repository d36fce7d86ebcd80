"""A handler can ask RabbitMQ's delivery for its exchange and routing key, also after a retry and a replay; routes may be by it."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from oncemq import App
from oncemq.contracts.adapter import (
    CONFIRMED,
    Adapter,
    DeadLetterRequest,
    ParkedDeadLetter,
    RetryRequest,
    Subscription,
)
from oncemq.message import headers as names
from oncemq.message.envelope import Message, OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink
from oncemq_adapters.rabbitmq import RabbitMQMetadata
from support.benches.rabbitmq_traps import Open, open_adapter, subscription_of
from support.brokers.rabbitmq import adapter_on, connect

__all__ = ["open_adapter"]

GRACE = timedelta(seconds=5)


@pytest.fixture
def bound(rabbitmq_url: str, fresh: str) -> Iterator[Subscription]:
    """A queue that is bound to a topic exchange."""
    with connect(rabbitmq_url) as connection:
        channel = connection.channel()
        channel.exchange_declare(fresh, "topic")
        channel.queue_declare(fresh, durable=True)
        channel.queue_bind(fresh, fresh, "order.*")
        yield Subscription("c", fresh, fresh, {"queue": fresh})
        channel.exchange_delete(fresh)
        channel.queue_delete(fresh)


@pytest.fixture
def adapter(rabbitmq_url: str) -> Iterator[Adapter]:
    """An adapter that consumes."""
    adapter = adapter_on(rabbitmq_url)
    yield adapter
    adapter.close(grace=GRACE)


def told(message: Message) -> RabbitMQMetadata:
    """Return the metadata of a message."""
    found = RabbitMQMetadata.read(message.metadata_source)
    assert found is not None
    return found


def publish(url: str, exchange: str, routing_key: str) -> None:
    """Publish as a stranger does."""
    with connect(url) as connection:
        connection.channel().basic_publish(exchange, routing_key, b"x")


def test_exchange_and_routing_key_are_the_producers(
    rabbitmq_url: str, adapter: Adapter, bound: Subscription
) -> None:
    """With the channel's number, and whether the broker has delivered it before."""
    sink = RecordingSink()
    adapter.open([bound], sink)
    publish(rabbitmq_url, bound.topic, "order.paid")
    (delivery,) = sink.wait_for(1)
    assert told(delivery.message) == RabbitMQMetadata(bound.topic, "order.paid", 1, redelivered=False)


def test_a_retry_and_a_replay_keep_exchange_and_routing_key(
    rabbitmq_url: str, adapter: Adapter, bound: Subscription
) -> None:
    """Though their copies come by the default exchange: a handler that looks at them does the same again."""
    sink = RecordingSink()
    adapter.open([bound], sink)
    publish(rabbitmq_url, bound.topic, "order.paid")
    assert not adapter.retry([RetryRequest(sink.wait_for(1)[0], timedelta(0), {names.ATTEMPT: "2"})])
    retried = sink.wait_for(2)[1]
    assert not adapter.dead_letter([DeadLetterRequest(retried, {names.REASON: "rejected"})])
    (letter,) = adapter.dead_letters(bound, 10)
    assert adapter.replay_dead_letters(bound, [letter.id]) == 1
    replayed = sink.wait_for(3)[2]
    for delivery in (retried, replayed):
        found = told(delivery.message)
        assert (found.exchange, found.routing_key) == (bound.topic, "order.paid")


SENT = ("order.paid", "order.lost", "order.sent", "order.paid.late")


def _publish(url: str, exchange: str, *keys: str) -> None:
    adapter = adapter_on(url)
    for key in keys:
        options = {"exchange": exchange, "routing_key": key}
        adapter.publish("any", options, [OutgoingMessage(key.encode(), {"routing_key": "a lie"})])
    adapter.close(grace=timedelta(seconds=5))


def test_exactly_the_messages_of_the_routes_come(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """Of a consumer that is subscribed to its routes; a message of another key is not even stored."""
    app = App("shop", brokers={"main": rabbitmq_url}, database="sqlite://")
    app.topic("orders", key="body.id", identity="message_id", strategies=["unique_key"], exchange=fresh)
    routes = app.routes(
        topic="orders", name="events", group=fresh, by="headers.routing_key", otherwise="unsubscribed"
    )
    routes.route("order.paid")(lambda order: None)
    routes.route("order.sent")(lambda order: None)
    (consumer,) = app.plan().consumers
    adapter, sink = open_adapter(rabbitmq_url, consumer.subscription)
    _publish(rabbitmq_url, fresh, *SENT)
    found = {delivery.message.body: delivery.message.headers["routing_key"] for delivery in sink.wait_for(2)}
    assert found == {b"order.paid": "order.paid", b"order.sent": "order.sent"}
    assert adapter.depth(consumer.subscription) == 0


def test_retries_and_replays_tell_the_key_of_the_original(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """Also a message that was parked in the ledger: else the replay would have no route."""
    subscription = subscription_of(fresh, exchange=fresh, routing_keys=["order.paid", "order.sent"])
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    _publish(rabbitmq_url, fresh, "order.sent")
    assert not adapter.retry([RetryRequest(sink.wait_for(1)[0], timedelta(0), {names.ATTEMPT: "2"})])
    retried = sink.wait_for(2)[1]
    assert not adapter.dead_letter([DeadLetterRequest(retried, {names.REASON: "rejected"})])
    parked = Message(subscription.topic, b"x", headers={"routing_key": "order.sent"})
    assert adapter.publish_dead_letters(subscription, [ParkedDeadLetter(parked, {})]) == [CONFIRMED]
    letters = [letter.id for letter in adapter.dead_letters(subscription, 10)]
    assert adapter.replay_dead_letters(subscription, letters) == 2
    assert [found.message.headers["routing_key"] for found in sink.wait_for(4)] == ["order.sent"] * 4
