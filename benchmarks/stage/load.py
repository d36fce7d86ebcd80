"""The messages of a measurement: orders, published with confirmation before it starts, and the queues they are in."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pika
from benchmarks.stage.tables import USERS

from oncemq.common.clock import SystemClock
from oncemq.contracts.adapter import AdapterScope, Subscription
from oncemq_adapters.rabbitmq import RabbitMQAdapter
from oncemq_adapters.rabbitmq.topology.names import Place, place_of

SEED = 42
PARTITIONS = 16
"""As in `peers/oncemq/partitioned.yaml`."""
_ZIPF = 1.1


@dataclass(frozen=True, slots=True)
class Orders:
    """What is published.

    Args:
        messages: how many, duplicates included.
        duplicates: copies for each order: 0.1 = every tenth is sent twice, 9 = each is sent ten times.
        poison: the share of orders whose handler always fails.
        users: how many users they are spread over.
        zipf: some users have many orders and most have few (exponent 1.1).
    """

    messages: int
    duplicates: float = 0.1
    poison: float = 0.0
    users: int = USERS
    zipf: bool = False

    @property
    def unique(self) -> int:
        """How many different orders there are."""
        return round(self.messages / (1 + self.duplicates))

    def poisonous(self, number: int) -> bool:
        """Return whether order `number` is poison: spread evenly, the same ones each time."""
        return self.poison > 0 and number % round(1 / self.poison) == 0

    @property
    def healthy(self) -> int:
        """How many different orders must have their effect."""
        return sum(not self.poisonous(number) for number in range(self.unique))

    def numbers(self) -> list[int]:
        """Return the orders' numbers in the order of publishing; the same each time."""
        draw = random.Random(SEED)
        numbers = list(range(self.unique))
        times, some = divmod(self.messages - self.unique, self.unique)
        numbers += [*range(self.unique)] * times
        numbers += draw.sample(range(self.unique), some)
        draw.shuffle(numbers)
        return numbers

    def bodies(self, name: str) -> list[dict[str, object]]:
        """Return the messages; `name` tells this measurement's orders from all others."""
        users = self._users()
        return [
            {
                "order_id": f"{name}-{number}",
                "user_id": f"user-{users[number % len(users)]}",
                "amount": -1.0 if self.poisonous(number) else 12.5,
            }
            for number in self.numbers()
        ]

    def _users(self) -> Sequence[int]:
        if not self.zipf:
            return range(self.users)
        draw = random.Random(SEED)
        weights = [1 / place**_ZIPF for place in range(1, self.users + 1)]
        return draw.choices(range(self.users), weights, k=self.unique)


Publish = Callable[[str, str, list[dict[str, object]]], None]


def publish(url: str, queue: str, bodies: list[dict[str, object]]) -> None:
    """Fill a fresh durable queue with JSON bodies."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_declare(queue, durable=True)
    send(connection, queue, [json.dumps(body).encode() for body in bodies])


def send(connection: pika.BlockingConnection, queue: str, bodies: list[bytes]) -> None:
    """Publish to `queue` with confirmation, and disconnect."""
    channel = connection.channel()
    channel.tx_select()
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    for place, body in enumerate(bodies, 1):
        channel.basic_publish("", queue, body, properties)
        if place % 1000 == 0:
            channel.tx_commit()
    channel.tx_commit()
    connection.close()


class Queue:
    """Looks at one queue, on a connection that is kept."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._name = name
        self._dead = f"oncemq.bench.{name}.dead"

    def look(self) -> tuple[int, int]:
        """Return how many messages are ready, and how many consumers there are."""
        found = self._channel.queue_declare(self._name, passive=True).method
        return int(found.message_count), int(found.consumer_count)

    def dead(self) -> int:
        """Return how many dead letters OnceMQ has put aside."""
        return int(self._channel.queue_declare(self._dead, passive=True).method.message_count)

    def remove(self) -> None:
        """Delete the queue and those that its consumers made beside it, and disconnect."""
        for name in (self._name, f"{self._name}.DQ", f"{self._name}.XQ", self._dead):
            self._channel.queue_delete(name)
        self._connection.close()


class Partitions:
    """The queues of a group, as `Queue` is one.

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
