"""Describes RabbitMQ for documents about an app: exchanges, queues and routing keys, in AsyncAPI's amqp bindings."""

from collections.abc import Mapping
from typing import Any

from oncemq.contracts.adapter import Subscription
from oncemq.contracts.descriptions import ServerDescription, SubscriptionDescription, TopicDescription
from oncemq_adapters.rabbitmq.connection.address import Address
from oncemq_adapters.rabbitmq.topology.names import (
    DEFAULT_EXCHANGE,
    DEFAULT_KIND,
    TopicOptions,
    parse_topic,
    place_of,
)

BINDING = "0.3.0"
_KINDS = frozenset({"topic", "direct", "fanout", "headers"})
"""Types of exchanges that AsyncAPI's bindings know; others are those of plugins."""

_SENDING = {"deliveryMode": 2, "mandatory": True, "bindingVersion": BINDING}
_RECEIVING = {"ack": True, "bindingVersion": BINDING}


class RabbitMQDescription:
    """What AsyncAPI says of one RabbitMQ.

    Args:
        address: its address.
    """

    def __init__(self, address: Address) -> None:
        self._address = address

    def server(self) -> ServerDescription:
        """Return its hosts and the virtual host."""
        return ServerDescription(
            [str(host) for host in self._address.hosts],
            "amqps" if self._address.tls else "amqp",
            version="0-9-1",
            path=f"/{self._address.virtual_host.removeprefix('/')}",
            login="userPassword",
        )

    def topic(self, topic: str, options: Mapping[str, Any]) -> TopicDescription:
        """Return the exchange and the routing key, or the queue that is published to directly."""
        parsed = parse_topic(topic, options, self._address.queue_type)
        bindings = {"amqp": self._channel(parsed) | {"bindingVersion": BINDING}}
        kind = parsed.exchange_type
        facts = {"exchange-type": kind} if kind is not None and kind not in _KINDS else {}
        sending = {"amqp": _SENDING}
        if parsed.partitions is None:
            return TopicDescription(parsed.routing_key, channel=bindings, sending=sending, facts=facts)
        numbers = [str(number) for number in range(parsed.partitions)]
        return TopicDescription(
            f"{parsed.routing_key}.{parsed.partitions}-{{partition}}",
            {"partition": numbers},
            bindings,
            sending,
            facts=facts | {"partitions": parsed.partitions},
        )

    def subscription(self, subscription: Subscription) -> SubscriptionDescription:
        """Return the group's queues: where it consumes, its retries and its dead letters."""
        place = place_of(subscription, self._address.queue_type)
        start = f"{place.queue}.{place.topic.partitions}-*" if place.is_partitioned else place.private
        return SubscriptionDescription(
            {"amqp": _RECEIVING},
            retries=f"{start}.retry.*",
            dead_letters=place.dead_queue,
            facts={"queues": place.queues()},
        )

    def _channel(self, topic: TopicOptions) -> dict[str, Any]:
        host = {"vhost": self._address.virtual_host}
        if not topic.exchange:
            return {"is": "queue", "queue": {"name": topic.queue or topic.stream} | host}
        exchange: dict[str, Any] = {"name": topic.exchange}
        kind = topic.exchange_type or (DEFAULT_KIND if topic.exchange == DEFAULT_EXCHANGE else None)
        if kind in _KINDS:
            exchange["type"] = kind
        if topic.exchange == DEFAULT_EXCHANGE:
            exchange["durable"] = True
        return {"is": "routingKey", "exchange": exchange | host}
