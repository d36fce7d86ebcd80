"""The pairs of broker and database that scenarios run on, and what is left of a topic when all is done."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest

EMBEDDED = "embedded+sqlite"
POSTGRESQL = "rabbitmq+postgresql"
MARIADB = "rabbitmq+mariadb"
ROCKETMQ = "rocketmq+sqlite"
ROCKETMQ_POSTGRESQL = "rocketmq+postgresql"
KAFKA_POSTGRESQL = "kafka+postgresql"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an app runs.

    Args:
        broker: the broker's URL.
        database: the database's URL.
        name: fresh; the app's and the topic's name.
        folder: empty, of the test's own.
    """

    broker: str
    database: str
    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the examples' YAML expands."""
        return {"BROKER": self.broker, "DATABASE": self.database}

    def queue(self, consumer: str) -> str:
        """Return the queue that the consumer's group has on RabbitMQ."""
        return f"{self.name}-{consumer}.{self.name}"

    def unsettled(self, consumer: str) -> int:
        """Return how many messages the broker would still deliver; no one may be consuming now."""
        if self.broker.startswith("embedded"):
            connection = sqlite3.connect(self.folder / "broker.db")
            try:
                return int(connection.execute("SELECT count(*) FROM oncemq_broker_deliveries").fetchone()[0])
            finally:
                connection.close()
        with pika.BlockingConnection(pika.URLParameters(self.broker)) as connection:
            declared = connection.channel().queue_declare(self.queue(consumer), passive=True)
            return int(declared.method.message_count)

    def clear(self) -> None:
        """Delete every queue whose name starts with this place's."""
        if not self.broker.startswith("amqp"):
            return
        with pika.BlockingConnection(pika.URLParameters(self.broker)) as connection:
            channel = connection.channel()
            for consumer in ("judge", "track-order", "award-points", "mail-receipt"):
                for suffix in ("", ".dead"):
                    with suppress(pika.exceptions.AMQPError):
                        channel.queue_delete(self.queue(consumer) + suffix)


def make_place(kind: str, request: pytest.FixtureRequest, folder: Path, name: str) -> Iterator[Place]:
    """Lend a place of this kind; its queues are deleted at the end."""
    if kind == EMBEDDED:
        yield Place(f"embedded:///{folder}/broker.db", f"sqlite:///{folder}/effects.db", name, folder)
        return
    if kind == ROCKETMQ:
        url = request.getfixturevalue("rocketmq_url")
        yield Place(url, f"sqlite:///{folder}/effects.db", name, folder)
        return
    if kind == ROCKETMQ_POSTGRESQL:
        database = request.getfixturevalue("postgresql_database")
        yield Place(request.getfixturevalue("rocketmq_url"), database, name, folder)
        return
    if kind == KAFKA_POSTGRESQL:
        # A process that takes over a static member's name has its partitions at once, without waiting for its death.
        url = f"{request.getfixturevalue('kafka_url')}?member={name}&session_timeout=6s&namespace={name}."
        yield Place(url, request.getfixturevalue("postgresql_database"), name, folder)
        return
    database = "postgresql_database" if kind == POSTGRESQL else "mariadb_database"
    place = Place(request.getfixturevalue("rabbitmq_url"), request.getfixturevalue(database), name, folder)
    yield place
    place.clear()
