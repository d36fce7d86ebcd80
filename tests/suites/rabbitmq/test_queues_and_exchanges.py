"""Queues and exchanges that are missing, deleted, declared differently or of another kind."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from oncemq.contracts.adapter import (
    CONFIRMED,
    DeadLetterRequest,
    Refused,
    RetryRequest,
    Subscription,
)
from oncemq.errors import BrokerRefused, Unroutable
from oncemq.message.envelope import OutgoingMessage
from support.benches.rabbitmq_traps import (
    SOON,
    Open,
    eventually,
    is_subscribed,
    open_adapter,
    properties_of,
    put,
    subscription_of,
)
from support.brokers.rabbitmq import adapter_on, connect

__all__ = ["open_adapter"]


def test_a_stream_is_never_consumed(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """A stream is refused at the start, and by the subscription itself when a queue becomes one behind our back."""
    connection = connect(rabbitmq_url)
    channel = connection.channel()
    channel.queue_declare(fresh, durable=True, arguments={"x-queue-type": "stream"})
    with pytest.raises(BrokerRefused, match="is a stream"):
        open_adapter(rabbitmq_url, subscription_of(fresh, queue=fresh))
    channel.queue_delete(fresh)
    channel.queue_declare(fresh, durable=True, arguments={"x-queue-type": "classic"})
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh, queue=fresh))
    channel.queue_delete(fresh)
    channel.queue_declare(fresh, durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", fresh, b"one")
    eventually(lambda: "is a stream" in adapter.health()[0].detail)
    connection.close()
    assert sink.deliveries() == []


def test_a_missing_exchange_is_unroutable(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """An exchange that was deleted is no broken connection: the answer says what is missing, and others are published."""
    adapter, _ = open_adapter(rabbitmq_url, subscription_of(fresh))
    connection = connect(rabbitmq_url)
    connection.channel().exchange_declare(f"{fresh}-gone", "topic")
    options = {"exchange": f"{fresh}-gone"}
    adapter.publish("paid", options, [OutgoingMessage(b"x")])
    connection.channel().exchange_delete(f"{fresh}-gone")
    connection.close()
    (answer,) = adapter.publish("paid", options, [OutgoingMessage(b"x")])
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, Unroutable)
    assert adapter.publish(f"{fresh}.paid", {}, [OutgoingMessage(b"x")]) == [CONFIRMED]


def test_a_deleted_queue_is_declared_and_consumed_again(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """When the broker cancels the consumer because its queue was deleted, health says so until it consumes again."""
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh))
    connection = connect(rabbitmq_url)
    connection.channel().queue_delete(f"{fresh}-group.{fresh}.paid")
    connection.close()
    sink.wait_for_loss()
    eventually(lambda: is_subscribed(adapter))
    put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x")
    sink.wait_for(1)


def test_an_existing_queue_that_vanishes_is_not_made_by_us(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """Health names the missing queue; when its owner declares it again, it is consumed; others are not disturbed."""
    connection = connect(rabbitmq_url)
    connection.channel().queue_declare(f"{fresh}.orders", durable=True)
    own = Subscription("own", f"{fresh}.other", f"{fresh}-group")
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh, queue=f"{fresh}.orders"), own)
    connection.channel().queue_delete(f"{fresh}.orders")

    def names_it() -> bool:
        return any("never declared here" in row.detail for row in adapter.health())

    eventually(names_it)
    assert [row.subscribed for row in adapter.health()] == [False, True]
    connection.channel().queue_declare(f"{fresh}.orders", durable=True)
    eventually(lambda: is_subscribed(adapter))
    put(rabbitmq_url, f"{fresh}.orders", b"x")
    assert sink.wait_for(1)[0].message.body == b"x"
    connection.channel().queue_delete(f"{fresh}.orders")
    connection.close()
    assert {loss.consumer for loss in sink.losses()} == {"points"}


def test_a_queue_that_is_declared_differently_is_refused(rabbitmq_url: str, fresh: str) -> None:
    """The error names queue, argument, what it is and what to do."""
    adapter_on(rabbitmq_url).prepare([subscription_of(fresh)])
    with pytest.raises(BrokerRefused) as caught:
        adapter_on(rabbitmq_url).prepare([subscription_of(fresh, queue_type="classic")])
    text = str(caught.value)
    assert f"'{fresh}-group.{fresh}.paid' exists and is declared differently" in text
    assert "x-queue-type is 'quorum', this app declares 'classic'" in text
    assert "set queue_type" in text


def test_a_missing_existing_queue_is_refused(rabbitmq_url: str, fresh: str) -> None:
    """`queue:` never declares: the error says what to declare or to write."""
    with pytest.raises(BrokerRefused, match=r"does not exist.*never declared here"):
        adapter_on(rabbitmq_url).prepare([subscription_of(fresh, queue=f"{fresh}.orders")])


def test_an_existing_queue_of_any_kind_is_consumed(rabbitmq_url: str, fresh: str, open_adapter: Open) -> None:
    """A queue with arguments of its owner's is taken as it is; retries and dead letters have names of our own."""
    connection = connect(rabbitmq_url)
    queue = f"{fresh}.orders"
    connection.channel().queue_declare(
        queue, durable=True, arguments={"x-max-priority": 5, "x-max-length": 100}
    )
    subscription = subscription_of(fresh, queue=queue)
    adapter, sink = open_adapter(rabbitmq_url, subscription)
    put(rabbitmq_url, queue, b"x", priority=3)
    assert not adapter.retry([RetryRequest(sink.wait_for(1)[0], SOON, {})])
    again = sink.wait_for(2)[1]
    assert properties_of(again).priority == 3
    assert not adapter.dead_letter([DeadLetterRequest(again, {})])
    waiting = connection.channel().queue_declare(f"oncemq.{fresh}-group.{queue}.dead", passive=True)
    assert waiting.method.message_count == 1
    connection.channel().queue_delete(queue)
    connection.close()


def test_an_exchange_of_another_type_is_refused(rabbitmq_url: str, fresh: str) -> None:
    """A declared `exchange_type` must be what exists; without it the exchange is taken as it is."""
    connection = connect(rabbitmq_url)
    connection.channel().exchange_declare(f"{fresh}.shop", "direct", durable=True)
    try:
        topical = subscription_of(fresh, exchange=f"{fresh}.shop", exchange_type="topic")
        with pytest.raises(BrokerRefused, match="type is 'direct', this app declares 'topic'"):
            adapter_on(rabbitmq_url).prepare([topical])
        adapter_on(rabbitmq_url).prepare([subscription_of(fresh, exchange=f"{fresh}.shop")])
    finally:
        connection.channel().exchange_delete(f"{fresh}.shop")
        connection.close()


def test_publishing_to_a_missing_queue_is_refused_and_harms_nothing(
    rabbitmq_url: str, fresh: str, open_adapter: Open
) -> None:
    """Only the message without a queue is refused; its neighbour on the same channel is confirmed."""
    subscription = subscription_of(fresh)
    adapter, _ = open_adapter(rabbitmq_url, subscription)
    with ThreadPoolExecutor(2) as pool:
        bad = pool.submit(adapter.publish, "x", {"queue": f"{fresh}.none"}, [OutgoingMessage(b"x")] * 50)
        good = pool.submit(adapter.publish, subscription.topic, {}, [OutgoingMessage(b"y")] * 50)
    assert [type(answer).__name__ for answer in bad.result()] == ["Refused"] * 50
    assert [type(answer).__name__ for answer in good.result()] == ["Confirmed"] * 50


def test_looking_for_a_missing_queue_delays_no_other_consumer(
    rabbitmq_url: str, fresh: str, open_adapter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a host does not answer what became of one consumer's queue, the others of the connection go on."""
    connection = connect(rabbitmq_url)
    channel = connection.channel()
    channel.queue_declare(fresh, durable=True)
    missing = Subscription("missing", f"{fresh}.missing", f"{fresh}-group", {"queue": fresh})
    adapter, sink = open_adapter(rabbitmq_url, subscription_of(fresh), missing)
    looking, answer = Event(), Event()

    def ensure(*_: object) -> None:
        looking.set()
        answer.wait(60)

    monkeypatch.setattr("oncemq_adapters.rabbitmq.topology.partitions.ensure_place", ensure)
    channel.queue_delete(fresh)
    try:
        assert looking.wait(20)
        put(rabbitmq_url, f"{fresh}-group.{fresh}.paid", b"x")
        assert not adapter.acknowledge(sink.wait_for(1))
        assert [row.subscribed for row in adapter.health()] == [True, False]
    finally:
        answer.set()
    channel.queue_declare(fresh, durable=True)
    eventually(lambda: all(row.subscribed for row in adapter.health()))
    channel.queue_delete(fresh)
    connection.close()
