"""`tiered` while Redis fails in every way it can: nothing lost, nothing double, and the database decides meanwhile."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.redis.client import RedisClient
from oncemq.redis.connect import make_client
from oncemq_strategies.tiered.strategy import Tiered
from services.waiting import wait_until
from support.database.ledgers import BOOKED, ledger_engine
from support.servers import OwnServer
from support.units import UnitBench, build, orders

UNITS = 12
AT = UNITS // 3
IDS = [[f"m{(7 * unit + n) % 40}" for n in range(10)] for unit in range(UNITS)]
"""Ten messages in each unit, most of them copies of earlier ones."""


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database with the ledger and a table of payments."""
    with ledger_engine(sqlite_database, BOOKED) as engine:
        yield engine


def pay(order: dict[str, str], session: Session) -> None:
    """Book a payment."""
    session.execute(text("INSERT INTO payments VALUES (:id)"), {"id": order["id"]})


def applied(engine: Engine) -> list[str]:
    """Return what was booked."""
    with engine.begin() as connection:
        return sorted(connection.execute(text("SELECT id FROM payments")).scalars())


def play(engine: Engine, client: RedisClient, fresh: str, harm: Callable[[int], None]) -> Tiered:
    """Run all units, doing `harm` before each; everything must have been applied once in the end."""
    strategy: Tiered = build(Tiered, engine, fresh, {"bloom": "shared"}, redis=client)
    bench = UnitBench(engine, pay, strategy, name=fresh)
    for number, ids in enumerate(IDS):
        harm(number)
        assert set(bench.run(*orders(*ids))) <= {"applied", "duplicate"}
    assert applied(engine) == sorted({identity for ids in IDS for identity in ids})
    assert bench.failures == []
    return strategy


def test_redis_dies_and_comes_back(
    engine: Engine, own_redis: OwnServer, fresh: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The circuit opens and closes, each said once."""
    server = own_redis()

    def harm(unit: int) -> None:
        if unit == AT:
            server.kill()
        if unit == 2 * AT:
            server.start()

    with closing(make_client(server.url)) as client, caplog.at_level(logging.WARNING):
        strategy = play(engine, client, fresh, harm)
        bench = UnitBench(engine, pay, strategy, name=fresh)

        def closed() -> bool:
            bench.run(*orders("m0"))
            return strategy.figures()["redis_circuit_open"] == 0.0

        assert wait_until(closed, seconds=20)
    said = [record.message for record in caplog.records if "oncemq_strategies" in record.name]
    assert ["answers again after" in line for line in said] == [False, True]
    assert applied(engine) == sorted({identity for ids in IDS for identity in ids})


def test_redis_forgets_everything(engine: Engine, own_redis: OwnServer, fresh: str) -> None:
    """FLUSHALL, again and again; and evicted marks are forgotten ones."""
    server = own_redis()
    with closing(make_client(server.url)) as client:
        strategy = play(
            engine, client, fresh, lambda unit: client.command("FLUSHALL", key="") if unit % 2 else None
        )
    assert strategy.figures()["database_conflict_rate"] > 0


def test_redis_evicts(engine: Engine, own_redis: OwnServer, fresh: str) -> None:
    """A full memory throws marks away, or refuses them; the database knows."""
    server = own_redis()
    with closing(make_client(server.url)) as client:
        client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random", key="")
        client.command("CONFIG", "SET", "maxmemory", "1", key="")
        play(engine, client, fresh, lambda _unit: None)


def test_redis_is_paused(engine: Engine, own_redis: OwnServer, fresh: str) -> None:
    """CLIENT PAUSE costs one unit the time-out, and the others nothing."""
    server = own_redis()
    with closing(make_client(server.url)) as client:
        strategy = play(
            engine,
            client,
            fresh,
            lambda unit: client.command("CLIENT", "PAUSE", "4000", key="") if unit == AT else None,
        )
    assert strategy.figures()["redis_circuit_open"] == 1.0
