"""`make bench`: measures every peer side by side and prints ratios, losing rows included."""

import argparse
import os
import statistics
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine, create_engine, make_url, text

from benchmarks.handlers import Base
from benchmarks.measure import ROOT, Peer, Servers, measure, python
from oncemq.ledger import schema

FASTSTREAM = python("-m", "benchmarks.peers.faststream_points")
ONCEMQ = python("-m", "oncemq", "-f", "benchmarks/peers/oncemq_points/app.yaml", "run")

PEERS = (
    Peer("OnceMQ, unique_key, ORM handler", ONCEMQ, {}),
    Peer("FastStream, dedup row by hand, ORM handler", FASTSTREAM, {}),
    Peer("FastStream, empty handler (at least once)", FASTSTREAM, {"BENCH_EMPTY": "1"}, effects=False),
)


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    servers = _servers()
    url = make_url(servers.postgresql)
    database = f"bench_{uuid4().hex[:8]}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {database}"))
        durable = connection.execute(text("SHOW synchronous_commit")).scalar_one()
    mine = url.set(database=database)
    engine = create_engine(mine)
    try:
        Base.metadata.create_all(engine)
        schema.create(engine)
        own = Servers(servers.rabbitmq, mine.render_as_string(hide_password=False))
        _table(_measure_all(own, engine, arguments), durable)
    finally:
        engine.dispose()
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {database} WITH (FORCE)"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000, help="messages of each measurement")
    parser.add_argument("--repetitions", type=int, default=3, help="interleaved rounds; the median counts")
    return parser.parse_args()


def _servers() -> Servers:
    found = dict(os.environ)
    file = Path(ROOT / ".services" / "env")
    if file.exists():
        found = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line) | found
    try:
        return Servers(found["ONCEMQ_TEST_RABBITMQ"], found["ONCEMQ_TEST_POSTGRESQL"])
    except KeyError as missing:
        raise SystemExit(f"{missing} is not set: run `make services` first") from None


def _measure_all(servers: Servers, engine: Engine, arguments: argparse.Namespace) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {peer.name: [] for peer in PEERS}
    for repetition in range(arguments.repetitions):
        for peer in PEERS:
            rate = measure(peer, servers, engine, arguments.messages)
            rates[peer.name].append(rate)
            print(f"  round {repetition + 1}: {peer.name}: {rate:,.0f}/s", flush=True)
    return rates


def _table(rates: dict[str, list[float]], durable: str) -> None:
    own = statistics.median(rates[PEERS[0].name])
    print(
        f"\nRabbitMQ to PostgreSQL (synchronous_commit={durable}), 10 % duplicates, one process each; "
        f"FastStream {version('faststream')}, OnceMQ {version('oncemq')}; median (lowest to highest)"
    )
    for name, values in rates.items():
        median = statistics.median(values)
        print(f"{name:46} {median:8,.0f}/s ({min(values):,.0f} to {max(values):,.0f})   OnceMQ is {own / median:5.1f}x")


if __name__ == "__main__":
    main()
