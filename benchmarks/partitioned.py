"""The partitions of the group that OnceMQ's partitioned peer consumes with: filled, looked at, removed."""

import json
from typing import Any

import pika

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq_adapters.rabbitmq import RabbitMQAdapter
from oncemq_adapters.rabbitmq.topology.names import Place, place_of

PARTITIONS = 16
"""As in `peers/oncemq/partitioned.yaml`."""


class Partitions:
    """The queues of a group, as `benchmarks.load.Queue` is one.

    Args:
        url: the broker's.
        group: the name of the measurement.
    """

    def __init__(self, url: str, group: str) -> None:
        options = {"queue_type": "classic", "partitions": PARTITIONS}
        self._subscription = Subscription("points", "orders", group, options)
        self._adapter = RabbitMQAdapter.build(url, {}, AdapterScope("bench", "shop", SystemClock()))
        self._adapter.prepare([self._subscription])
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel: Any = self._connection.channel()
        self._place: Place = place_of(self._subscription, "classic")
        self._members: set[str] = set()
        self._heard = f"{group}.heard"
        self._channel.queue_declare(self._heard, exclusive=True)
        self._channel.queue_bind(self._heard, self._place.members)

    def fill(self, bodies: list[dict[str, object]]) -> None:
        """Put orders into the partitions of their users."""
        self._channel.tx_select()
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        for body in bodies:
            queue = self._place.queue_of(str(body["user_id"]))
            self._channel.basic_publish("", queue, json.dumps(body).encode(), properties)
        self._channel.tx_commit()

    def look(self) -> tuple[int, int]:
        """Return how many messages are ready, and how many members have announced themselves."""
        while (said := self._channel.basic_get(self._heard, auto_ack=True)[2]) is not None:
            self._members.add(json.loads(said)["member"])
        found = [self._channel.queue_declare(queue, passive=True).method for queue in self._place.queues()]
        return sum(int(method.message_count) for method in found), len(self._members)

    def dead(self) -> int:
        """Return how many dead letters there are."""
        return int(self._channel.queue_declare(self._place.dead_queue, passive=True).method.message_count)

    def remove(self) -> None:
        """Delete the queues, and disconnect."""
        names = self._adapter.private_names(self._subscription)
        self._adapter.remove_places(names.broker, list(names.names))
        self._connection.close()
