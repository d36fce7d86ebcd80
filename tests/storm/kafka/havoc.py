"""What is done to a Kafka and its groups during a storm; every fault returns whether it is known to have happened."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

from confluent_kafka import Consumer

from storm.attack import havoc
from storm.attack.assassin import Assassin
from storm.attack.stage import wait_for
from storm.oracle.kafka_reader import OFFSETS, Reader
from support.brokers.places import Place


@dataclass(frozen=True, slots=True)
class KafkaField:
    """Servers that may be broken.

    Args:
        broker: the server; None where it is shared with others, and left alone.
        database: the database server; None likewise.
        place: how every process reaches them.
    """

    broker: Any
    database: Any
    place: Place


Fault = Callable[[KafkaField, Assassin], bool]
"""Given the servers, and who keeps the consumers."""


def stranger_joins(field: KafkaField, keeper: Assassin) -> bool:
    """Have a member that settles nothing get partitions in the middle of the work, and leave with what it has received."""
    stage, reader = keeper.stage, Reader(field.place.broker)
    before = stage.applied()
    wait_for(lambda: stage.applied() > before, "work", pause=0.1)
    names = reader.names(stage.group, field.place.name)
    settings = {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 2000}
    stranger = Consumer(
        {**reader.settings, **settings, "group.id": names.group, "auto.offset.reset": "earliest"}
    )

    def joined() -> bool:
        stranger.poll(0.1)
        return bool(stranger.assignment())

    try:
        stranger.subscribe([names.topic])
        wait_for(joined, "partitions of the stranger", pause=0)
    finally:
        stranger.close()
    return True


def kill_broker(field: KafkaField, _keeper: Assassin) -> bool:
    """SIGKILL the broker, and the group's coordinator with it."""
    return havoc.kill_server(field.broker)


def freeze_broker(field: KafkaField, _keeper: Assassin) -> bool:
    """SIGSTOP the broker for longer than a session lasts: connections stay open, nothing answers."""
    field.broker.pause()
    silent = not field.broker.answers()
    Event().wait(3)
    field.broker.resume()
    return silent


def kill_coordinator(field: KafkaField, keeper: Assassin) -> bool:
    """SIGKILL the node that coordinates the group; the others go on, and it comes back."""
    reader = Reader(field.place.broker)
    group = reader.names(keeper.stage.group, field.place.name).group
    return _kill_node(field, keeper, lambda: reader.leader(OFFSETS, reader.partition_of(group)))


def kill_leader(field: KafkaField, keeper: Assassin) -> bool:
    """SIGKILL the node that leads the topic's first partition; others lead it, and it comes back."""
    reader = Reader(field.place.broker)
    topic = reader.names(keeper.stage.group, field.place.name).topic
    return _kill_node(field, keeper, lambda: reader.leader(topic, 0))


def freeze_node(field: KafkaField, keeper: Assassin) -> bool:
    """SIGSTOP a node until the others take it for dead: its connections stay open, nothing answers."""
    node = field.broker.node(2)
    field.broker.pause(node)
    silent = not field.broker.answers()
    Event().wait(6)
    field.broker.resume()
    return silent


def _kill_node(field: KafkaField, keeper: Assassin, find: Callable[[], int]) -> bool:
    stage = keeper.stage
    before = stage.applied()
    wait_for(lambda: stage.applied() > before, "work", pause=0.1)
    field.broker.kill_only(field.broker.node(find()))
    away = not field.broker.answers()
    dead = stage.applied()
    wait_for(lambda: stage.applied() > dead, "the others to go on", 120, pause=0.1)
    field.broker.start()
    return away


def kill_database(field: KafkaField, _keeper: Assassin) -> bool:
    """SIGKILL the database and start it again."""
    return havoc.kill_server(field.database)


SHORT: dict[str, Fault] = {"stranger joined": stranger_joins}
OF_THREE_SHORT: dict[str, Fault] = {"coordinator killed": kill_coordinator}
OF_THREE: dict[str, Fault] = {
    **OF_THREE_SHORT,
    "leader killed": kill_leader,
    "node frozen": freeze_node,
    "database killed": kill_database,
}
"""What is done to three nodes, of which two go on."""
FAULTS: dict[str, Fault] = {
    **SHORT,
    "database killed": kill_database,
    "broker frozen": freeze_broker,
    "broker killed": kill_broker,
}
