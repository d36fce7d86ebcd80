"""The servers that are measured against, a database of our own on one of them, and what must be known about both."""

import os
import platform
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

import pika
from benchmarks.stage import tables
from sqlalchemy import URL, Engine, create_engine, inspect, make_url, text

from oncemq.ledger import schema
from oncemq.ledger.schema import VERSIONS
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq_client.connections import Routes
from oncemq_adapters.rocketmq_client.protocol import Connection, loose_json

ROOT = Path(__file__).parents[2]
_RUNTIME_INFO = 28
PACKAGES = (
    *("oncemq", "faststream", "aio-pika", "dramatiq", "pika", "SQLAlchemy", "psycopg", "pydantic"),
    *("structlog", "confluent-kafka"),
)


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are, and our connections to look at them."""

    rabbitmq: str
    postgresql: str
    redis: str | None
    engine: Engine
    rocketmq: str | None = None
    rocketmq_grpc: str | None = None
    kafka: str | None = None

    def empty(self) -> None:
        """Leave the tables as new: no measurement pays for the one before."""
        with self.engine.begin() as connection:
            present = inspect(connection).get_table_names()
            # What is known of a key, such as its last number, would make the next measurement's messages old ones.
            names = ", ".join(sorted(set(present) - {VERSIONS.name}))
            # A process of the last measurement that still holds a row shall be told of, and not be waited for.
            connection.execute(text("SET LOCAL lock_timeout = '60s'"))
            connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
            tables.refill(connection)

    def number(self, query: str) -> int:
        """Return the single number that a query yields."""
        with self.engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one() or 0)


@contextmanager
def own_database(server: URL) -> Iterator[URL]:
    """Yield the URL of an empty database on this PostgreSQL, which is dropped at the end."""
    name = f"bench_{uuid4().hex[:8]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield server.set(database=name)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


def postgresql() -> URL:
    """Return the URL of the test services' PostgreSQL."""
    return make_url(_needed("ONCEMQ_TEST_POSTGRESQL"))


@contextmanager
def servers() -> Iterator[Servers]:
    """Give access to the test services with a database of our own, which is dropped at the end."""
    rabbitmq, found = _needed("ONCEMQ_TEST_RABBITMQ"), _environment()
    with own_database(postgresql()) as mine:
        engine = create_engine(mine)
        try:
            tables.create(engine)
            schema.create(engine)
            yield Servers(
                rabbitmq,
                mine.render_as_string(hide_password=False),
                found.get("ONCEMQ_TEST_REDIS"),
                engine,
                found.get("ONCEMQ_TEST_ROCKETMQ"),
                found.get("ONCEMQ_TEST_ROCKETMQ_GRPC"),
                found.get("ONCEMQ_TEST_KAFKA"),
            )
        finally:
            engine.dispose()


def surroundings(servers: Servers) -> dict[str, str]:
    """Return what the numbers depend on: versions, durability, machine."""
    with servers.engine.connect() as connection:
        shown = {
            name: str(connection.execute(text(f"SHOW {name}")).scalar_one())
            for name in ("server_version", "synchronous_commit", "fsync")
        }
    broker = pika.BlockingConnection(pika.URLParameters(servers.rabbitmq))
    rabbitmq = str(broker._impl.server_properties["version"])
    broker.close()
    return {
        "machine": f"{os.cpu_count()} cores, {_processor()}",
        "Python": platform.python_version(),
        "PostgreSQL": shown["server_version"].partition(" ")[0],
        "synchronous_commit": shown["synchronous_commit"],
        "fsync": shown["fsync"],
        "RabbitMQ": rabbitmq,
        **({"RocketMQ": _rocketmq_version(servers.rocketmq)} if servers.rocketmq is not None else {}),
        **{name: _version(name) for name in PACKAGES},
    }


def _rocketmq_version(url: str) -> str:
    routes = Routes(parse_address(url, {}))
    try:
        broker = next(iter(routes.brokers().values()))
    finally:
        routes.close()
    connection = Connection(parse_address(url, {}), broker, "broker")
    try:
        told = loose_json(connection.call(_RUNTIME_INFO, {})[1])["table"]
    finally:
        connection.close()
    return str(told["brokerVersionDesc"]).removeprefix("V").replace("_", ".")


def _needed(name: str) -> str:
    found = _environment().get(name)
    if found is None:
        raise SystemExit(f"{name} is not set: run `make services` first")
    return found


def _environment() -> dict[str, str]:
    found = dict(os.environ)
    file = ROOT / ".services" / "env"
    if file.exists():
        found = dict(word.split("=", 1) for word in shlex.split(file.read_text())) | found
    return found


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
