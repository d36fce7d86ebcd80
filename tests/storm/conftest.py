"""Servers that the tests of this folder may break, behind proxies; of each module's own, since a server that idles costs more than a start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from oncemq_adapters.kafka.address import parse_address
from services.server import Server
from services.servers.kafka import Kafka, KafkaTrio
from services.servers.postgresql import PostgreSQL
from services.servers.rabbitmq import RabbitMQ
from services.servers.rocketmq import RocketMQBroker
from storm.attack.havoc import Field, field_of
from storm.kafka.havoc import KafkaField
from storm.rocketmq.havoc import RocketField
from storm.rocketmq.storm import LONG
from support.brokers.kafka import brokers_of
from support.brokers.places import Place
from support.patience import stretch
from support.servers import own_server

_RESTLESS = "session_timeout=2s&handover=2s&publish_timeout=60s"
"""A member that is frozen is dead to its group; a producer outlives a broker's restart, so that it keeps the order."""
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time on a slow machine."""
    stretch(item for item in items if item.path.is_relative_to(HERE))


@pytest.fixture(scope="module")
def breakable_rabbitmq() -> Iterator[Server]:
    """A RabbitMQ of these tests' own."""
    with own_server(RabbitMQ) as server:
        yield server


@pytest.fixture(scope="module")
def breakable_rocketmq() -> Iterator[Server]:
    """A RocketMQ of these tests' own."""
    with own_server(RocketMQBroker) as server:
        yield server


@pytest.fixture(scope="module")
def breakable_postgresql() -> Iterator[Server]:
    """A PostgreSQL of these tests' own."""
    with own_server(PostgreSQL) as server:
        yield server


@pytest.fixture
def field(
    breakable_rabbitmq: Server, breakable_postgresql: Server, fresh: str, tmp_path: Path
) -> Iterator[Field]:
    """RabbitMQ and PostgreSQL, running and in good health, with fresh proxies and an empty database."""
    breakable_rabbitmq.start()
    database = _fresh_database(breakable_postgresql, fresh)
    field = field_of(breakable_rabbitmq, breakable_postgresql, database, fresh, tmp_path)
    yield field
    field.close()


@pytest.fixture
def rocketmq_field(
    breakable_rocketmq: RocketMQBroker, breakable_postgresql: Server, fresh: str, tmp_path: Path
) -> RocketField:
    """RocketMQ and PostgreSQL, running and in good health, with an empty database."""
    breakable_rocketmq.start()
    database = _fresh_database(breakable_postgresql, fresh)
    place = Place(breakable_rocketmq.url, database, fresh, tmp_path)
    return RocketField(breakable_rocketmq, breakable_postgresql, place)


@pytest.fixture
def kafka_field(request: pytest.FixtureRequest, fresh: str, tmp_path: Path) -> Iterator[KafkaField]:
    """Kafka and PostgreSQL: in the long form of these tests' own, which may be broken; else those that all tests share."""
    if not LONG:
        url, database = request.getfixturevalue("kafka_url"), request.getfixturevalue("postgresql_database")
        yield KafkaField(None, None, Place(f"{url}?{_RESTLESS}", database, fresh, tmp_path))
        return
    server = request.getfixturevalue("breakable_postgresql")
    database = _fresh_database(server, fresh)
    with own_server(Kafka) as broker:
        yield KafkaField(broker, server, Place(f"{broker.url}?{_RESTLESS}", database, fresh, tmp_path))


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[KafkaTrio]:
    """Three Kafka nodes of these tests' own."""
    with own_server(KafkaTrio) as server:
        yield server
        # Nodes that end in order wait for each other.
        server.kill()


@pytest.fixture
def kafka_trio_field(
    request: pytest.FixtureRequest, three_nodes: KafkaTrio, fresh: str, tmp_path: Path
) -> KafkaField:
    """Three nodes of Kafka, all of them living, and PostgreSQL: in the long form of these tests' own, too."""
    three_nodes.start()
    # The brokers decide the session's time-out of a group by their own protocol.
    protocol = getattr(request, "param", "classic")
    options = _RESTLESS if protocol == "classic" else _RESTLESS.partition("&")[2]
    url = f"{three_nodes.url}?protocol={protocol}&{options}"
    brokers_of(parse_address(three_nodes.url, {}), 3)
    if not LONG:
        return KafkaField(
            three_nodes, None, Place(url, request.getfixturevalue("postgresql_database"), fresh, tmp_path)
        )
    server = request.getfixturevalue("breakable_postgresql")
    return KafkaField(three_nodes, server, Place(url, _fresh_database(server, fresh), fresh, tmp_path))


def _fresh_database(server: Server, name: str) -> str:
    server.start()
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(server.url).set(database=name).render_as_string(hide_password=False)
