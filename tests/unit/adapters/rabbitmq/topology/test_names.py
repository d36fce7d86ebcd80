"""What topic options mean, and which names are private to a group."""

import zlib
from typing import Any

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.errors import ConfigError
from oncemq_adapters.rabbitmq.topology.names import parse_topic, place_of


def subscription(**options: Any) -> Subscription:
    """Return a subscription of group `loyalty` to topic `order.paid`."""
    return Subscription("points", "order.paid", "loyalty", options)


def test_by_default_the_topic_is_a_routing_key() -> None:
    """Without options the exchange is `oncemq`, the routing key the topic, the queue the group's own."""
    place = place_of(subscription(), "quorum")
    assert (place.topic.exchange, place.topic.routing_key) == ("oncemq", "order.paid")
    assert place.queue == "loyalty.order.paid"
    assert place.dead_queue == "loyalty.order.paid.dead"
    assert place.retry_queue(1200) == "loyalty.order.paid.retry.1200"


def test_an_existing_queue_keeps_its_name() -> None:
    """`queue:` is consumed as it is; what is private to the group has the group in its name."""
    place = place_of(subscription(queue="orders"), "quorum")
    assert (place.queue, place.is_existing) == ("orders", True)
    assert place.dead_queue == "oncemq.loyalty.orders.dead"
    assert place.retry_queue(100) == "oncemq.loyalty.orders.retry.100"


def test_publishing_to_a_queue_topic_goes_to_the_queue() -> None:
    """Without an exchange the default exchange routes to the queue by its name."""
    topic = parse_topic("order.paid", {"queue": "orders"}, "quorum")
    assert (topic.exchange, topic.routing_key) == ("", "orders")


def test_a_queue_may_be_fed_by_an_exchange() -> None:
    """With both, messages are published to the exchange and consumed from the queue."""
    topic = parse_topic(
        "order.paid", {"queue": "orders", "exchange": "shop", "routing_key": "paid"}, "quorum"
    )
    assert (topic.queue, topic.exchange, topic.routing_key) == ("orders", "shop", "paid")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"exchnage": "shop"}, "did you mean 'exchange'?"),
        ({"exchange_type": "topik"}, "topic, direct"),
        ({"queue": "orders", "routing_key": "x"}, "add exchange:"),
        ({"queue": ""}, "not empty"),
        ({"queue": "q" * 256}, "255 bytes"),
        ({"prefetch": 0}, "from 1 to 65535"),
        ({"prefetch": True}, "from 1 to 65535"),
        ({"partitions": 0}, "from 1 to 256"),
        ({"partitions": 4, "queue": "orders"}, "leave partitions: out"),
        ({"partitions": 4, "exchange": "shop", "exchange_type": "fanout"}, "topic or direct"),
        ({"partitions": 4, "exchange": "shop", "routing_key": "order.*"}, "without wildcards"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], says: str) -> None:
    """Typos and contradictions are told in words that say what to write."""
    with pytest.raises(ConfigError) as caught:
        parse_topic("order.paid", options, "quorum")
    assert says in str(caught.value)


def test_private_names_must_fit() -> None:
    """A queue name whose retry queues would be too long for AMQP is refused before anything is declared."""
    with pytest.raises(ConfigError, match="too long"):
        place_of(subscription(queue="q" * 240), "quorum")


def test_partitions_are_queues_that_name_their_number() -> None:
    """So that a change of the number makes new queues; dead letters are those of the whole group."""
    place = place_of(subscription(partitions=3), "quorum")
    parts = place.parts()
    assert [part.queue for part in parts] == [f"loyalty.order.paid.3-{number}" for number in range(3)]
    assert {part.dead_queue for part in parts} == {"loyalty.order.paid.dead"}
    assert parts[1].retry_queue(100) == "loyalty.order.paid.3-1.retry.100"


def test_the_partition_of_a_key_is_its_crc_32() -> None:
    """Publishers in other languages can compute it."""
    topic = parse_topic("order.paid", {"partitions": 16}, "quorum")
    assert topic.key_of("order-1") == f"order.paid.16-{zlib.crc32(b'order-1') % 16}"
    assert parse_topic("order.paid", {}, "quorum").key_of("order-1") == "order.paid"
