"""Fixtures that give tests real servers, databases and names of their own. A missing server fails a test, it never skips it."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from services import catalog, environment
from services.container import Container
from services.errors import ServiceError
from services.server import Server
from services.servers.kafka import Kafka
from services.servers.mariadb import MariaDB
from services.servers.postgresql import PostgreSQL
from services.servers.rabbitmq import RabbitMQ
from services.servers.redis import Redis
from services.servers.redis_cluster import RedisCluster
from services.servers.rocketmq import RocketMQ, RocketMQBroker

OwnServer = Callable[[], Server | Container]

NEEDING_FIXTURES = frozenset(
    {
        *("rabbitmq_url", "rocketmq_url", "rocketmq_native_url", "postgresql_url", "mariadb_url"),
        *("postgresql_database", "mariadb_database", "postgresql_with_ledger", "mariadb_with_ledger"),
        *("kafka_url", "own_kafka"),
        *("own_rabbitmq", "own_rocketmq", "own_postgresql", "own_mariadb"),
        *("redis_url", "redis_cluster_url", "own_redis", "own_redis_cluster"),
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that leaves out what needs a server."""
    parser.addoption(
        "--embedded-only",
        action="store_true",
        help="leave out every test that needs RabbitMQ, RocketMQ, Kafka, PostgreSQL, MariaDB or Redis",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker for tests that ask for their server in other ways than by fixture."""
    config.addinivalue_line(
        "markers", "server: needs a real server although no fixture in its signature says so"
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say in the first lines that this run proves less."""
    if not config.getoption("--embedded-only"):
        return None
    return (
        "embedded only: tests that need RabbitMQ, RocketMQ, Kafka, PostgreSQL, MariaDB or Redis are left out"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need a server, where that was asked for."""
    if not config.getoption("--embedded-only"):
        return
    left_out = [item for item in items if needs_server(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not needs_server(item)]


def needs_server(item: pytest.Item) -> bool:
    """Return whether a test asks for a server, by a fixture or by the marker."""
    fixtures = getattr(item, "fixturenames", ())
    return not NEEDING_FIXTURES.isdisjoint(fixtures) or item.get_closest_marker("server") is not None


def url_from(variable: str, folder: Path = catalog.FOLDER) -> str:
    """Return a server's URL: the environment's, else the one that `make services` wrote."""
    if variable in os.environ:
        return os.environ[variable]
    file = folder / "env"
    urls = environment.read(file)
    if variable not in urls:
        pytest.fail(
            f"{variable} is neither in the environment nor in {file}: run `make services` first, "
            "or leave out such tests with --embedded-only.",
            pytrace=False,
        )
    return urls[variable]


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """URL of the RabbitMQ that all tests share; names come from `fresh`."""
    return url_from(RabbitMQ.variable)


@pytest.fixture(scope="session")
def rocketmq_url() -> str:
    """URL of the RocketMQ that all tests share, on its name server; names come from `fresh`."""
    return url_from(RocketMQ.variable)


@pytest.fixture(scope="session")
def kafka_url() -> str:
    """URL of the Kafka that all tests share; names come from `fresh`."""
    return url_from(Kafka.variable)


@pytest.fixture(scope="session")
def rocketmq_native_url() -> str:
    """URL of the same RocketMQ for the driver on librocketmq."""
    return url_from(f"{RocketMQ.variable}_NATIVE")


@pytest.fixture(scope="session")
def postgresql_url() -> str:
    """URL of the PostgreSQL that all tests share, on its maintenance database."""
    return url_from(PostgreSQL.variable)


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    """URL of the MariaDB that all tests share, on its system database."""
    return url_from(MariaDB.variable)


@pytest.fixture(scope="session")
def redis_url() -> str:
    """URL of the Redis that all tests share; keys come from `fresh`."""
    return url_from(Redis.variable)


@pytest.fixture(scope="session")
def redis_cluster_url() -> str:
    """URL of the Redis Cluster that all tests share; keys come from `fresh`."""
    return url_from(RedisCluster.variable)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("redis_url", marks=pytest.mark.server, id="single"),
        pytest.param("redis_cluster_url", marks=pytest.mark.server, id="cluster"),
    ],
)
def any_redis_url(request: pytest.FixtureRequest) -> str:
    """URL of a Redis, once for a single server and once for a cluster."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def fresh() -> str:
    """Short prefix that no other test, run or checkout uses; fit for queues, tables and databases."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def sqlite_database(tmp_path: Path, fresh: str) -> str:
    """URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / fresh}.db"


@pytest.fixture
def postgresql_database(postgresql_url: str, fresh: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database, dropped at the end with whatever is still connected."""
    server = make_url(postgresql_url)
    _execute(server, f"CREATE DATABASE {fresh}")
    yield server.set(database=fresh).render_as_string(hide_password=False)
    _execute(server, f"DROP DATABASE {fresh} WITH (FORCE)")


@pytest.fixture
def mariadb_database(mariadb_url: str, fresh: str) -> Iterator[str]:
    """URL of an empty MariaDB database, dropped at the end with whatever is still connected."""
    server = make_url(mariadb_url)
    _execute(server, f"CREATE DATABASE {fresh}")
    yield server.set(database=fresh).render_as_string(hide_password=False)
    # An open transaction would hold the DROP until its lock time-out.
    connected = f"SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = '{fresh}'"
    for kill in _execute(server, connected):
        _execute(server, kill, failing_ok=True)
    _execute(server, f"DROP DATABASE {fresh}")


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server),
        pytest.param("mariadb", marks=pytest.mark.server),
    ]
)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database, once for each kind that the ledger knows."""
    url: str = request.getfixturevalue(f"{request.param}_database")
    return url


@pytest.fixture
def own_rabbitmq() -> Iterator[OwnServer]:
    """Starts a RabbitMQ of the test's own on every call: to kill, freeze and restart."""
    yield from _own(RabbitMQ)


@pytest.fixture
def own_rocketmq() -> Iterator[OwnServer]:
    """Starts a RocketMQ of the test's own on every call, without a proxy: to kill, freeze and restart."""
    yield from _own(RocketMQBroker)


@pytest.fixture
def own_kafka() -> Iterator[OwnServer]:
    """Starts a Kafka of the test's own on every call: to kill, freeze and restart."""
    yield from _own(Kafka)


@pytest.fixture
def own_postgresql() -> Iterator[OwnServer]:
    """Starts a PostgreSQL of the test's own on every call: to kill, freeze and restart."""
    yield from _own(PostgreSQL)


@pytest.fixture
def own_mariadb() -> Iterator[OwnServer]:
    """Starts a MariaDB of the test's own on every call: to kill, freeze and restart."""
    yield from _own(MariaDB)


@pytest.fixture
def own_redis() -> Iterator[OwnServer]:
    """Starts a Redis of the test's own on every call: to kill, freeze and restart."""
    yield from _own(Redis)


@pytest.fixture
def own_redis_cluster() -> Iterator[OwnServer]:
    """Starts a Redis Cluster of the test's own on every call: to kill, freeze and restart."""
    yield from _own(RedisCluster)


@contextmanager
def own_server(kind: type[Server]) -> Iterator[Any]:
    """Lend a server of the tests' own that runs, for as many tests as share the fixture that uses this."""
    with contextmanager(_own)(kind) as start:
        yield start()


def _own(kind: type[Server]) -> Iterator[OwnServer]:
    servers = catalog.OwnServers(catalog.FOLDER)
    with ExitStack() as teardown:

        def start() -> Server | Container:
            try:
                server = servers.make(kind)
                teardown.callback(servers.remove, server)
                server.start()
            except ServiceError as error:
                pytest.fail(str(error), pytrace=False)
            return server

        yield start


def _execute(server: URL, statement: str, *, failing_ok: bool = False) -> list[str]:
    """Run one statement outside a transaction and return the first column."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            return list(result.scalars()) if result.returns_rows else []
    except Exception:
        if not failing_ok:
            raise
        return []
    finally:
        engine.dispose()
