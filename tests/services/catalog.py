"""Which servers there are, and where those of this checkout and of single tests live."""

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.container import Container, docker_works
from services.errors import ServiceError
from services.process import Launch, Process
from services.server import Server
from services.servers.galera import Galera
from services.servers.kafka import Kafka, KafkaTrio
from services.servers.mariadb import MariaDB
from services.servers.postgresql import PostgreSQL
from services.servers.rabbitmq import ManagedRabbitMQ, RabbitMQ, RabbitMQTrio
from services.servers.redis import Redis
from services.servers.redis_cluster import RedisCluster
from services.servers.rocketmq import RocketMQ, RocketMQPair
from services.servers.rocketmq_4 import RocketMQ4

KINDS: Sequence[type[Server]] = (RabbitMQ, PostgreSQL, MariaDB, RocketMQ, Kafka, Redis, RedisCluster)
OF_TESTS_ONLY: Sequence[type[Server]] = (
    ManagedRabbitMQ,
    RabbitMQTrio,
    RocketMQPair,
    RocketMQ4,
    KafkaTrio,
    Galera,
)
FOLDER = Path(__file__).parents[2] / ".services"

OWNER = Launch("owner", ())


def make(kind: type[Server], folder: Path) -> Server | Container:
    """Return the server that keeps its things in this folder; it is not started."""
    if kind.installed():
        return kind(folder)
    if kind.in_container and docker_works():
        return Container(kind(folder))
    raise ServiceError(f"{kind.kind} is not installed and Docker does not answer. Run `make services`.")


def shared(folder: Path, kinds: Sequence[type[Server]] = KINDS) -> list[Server | Container]:
    """Return the servers that all tests of a checkout share."""
    return [make(kind, folder / kind.kind) for kind in kinds]


_NUMBERS = itertools.count(1)
"""Of servers that this process owns, no matter who made them."""


class OwnServers:
    """Servers of single tests, found again and stopped by others if this process dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "own"

    def make(self, kind: type[Server]) -> Server | Container:
        """Return a new server with ports and data of its own; it is not started."""
        folder = self.folder / f"{kind.kind}-{os.getpid()}-{next(_NUMBERS)}"
        folder.mkdir(parents=True)
        Process.current().save(OWNER, folder=folder)
        return make(kind, folder)

    def remove(self, server: Server | Container) -> None:
        """Stop it and remove all of its files."""
        server.remove()
        shutil.rmtree(server.folder)

    def abandoned(self) -> Iterator[Server | Container]:
        """Return servers whose owner died without stopping them."""
        for folder in self.folder.glob("*"):
            if Process.load(OWNER, folder=folder) is None:
                yield make(_kind(folder.name.rsplit("-", 2)[0]), folder)


def _kind(name: str) -> type[Server]:
    return next(kind for kind in (*KINDS, *OF_TESTS_ONLY) if kind.kind == name)
