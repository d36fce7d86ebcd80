"""Redis forgets locks, or does not answer for longer than a lease: the holder is told, no one hangs, the database decides."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from oncemq.errors import OnceMQError
from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.redis.connect import make_client
from oncemq_strategies.redis_lock.strategy import RedisLock
from oncemq_strategies.redisson import Lock, NotHeld
from oncemq_strategies.redisson.lease_keeper import Keeper
from oncemq_strategies.unique_key.strategy import UniqueKey
from services.waiting import wait_until
from support.servers import OwnServer
from support.units import UnitBench, build

NOT_AT_ALL = timedelta(0)
LEASE = timedelta(milliseconds=600)
TOLD_WITHIN = LEASE.total_seconds() / 3 + 1


@pytest.fixture
def clients(own_redis: OwnServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[list]:
    """Two clients of a Redis that the test may spoil; locks have short leases."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", LEASE)
    server = own_redis()
    made = [make_client(server.url) for _ in range(2)]
    yield made
    for client in made:
        client.close()


def forget(client, how: str) -> None:
    """Have Redis forget all keys."""
    if how == "flush":
        client.command("FLUSHALL", key="")
        return
    client.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random", key="")
    client.command("CONFIG", "SET", "maxmemory", 1, key="")
    with suppress(OnceMQError):
        client.command("SET", "x", 1, key="x")
    client.command("CONFIG", "SET", "maxmemory", 0, key="")


@pytest.mark.parametrize("how", ["flush", "evict"])
def test_a_forgotten_lock_is_told_and_goes_on(clients, fresh, how):
    """Its holder hears of it, who waits gets it without any message, and the old holder cannot release the new one's."""
    client, rival = clients
    told, got, go_on = threading.Event(), threading.Event(), threading.Event()
    lock = Lock(client, fresh, on_loss=told.set)
    assert lock.acquire(NOT_AT_ALL)

    def wait() -> None:
        with Lock(rival, fresh):
            got.set()
            go_on.wait(20)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not got.wait(0.2)
    forget(rival, how)
    assert told.wait(TOLD_WITHIN)
    assert not lock.owned()
    assert got.wait(5)
    with pytest.raises(NotHeld):
        lock.release()
    assert lock.locked()
    go_on.set()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_pause_beyond_the_lease_hangs_no_worker(clients, fresh):
    """While nothing is answered the holder does not believe in its lock; afterwards work goes on."""
    client, rival = clients
    lock = Lock(client, fresh)
    assert lock.acquire(NOT_AT_ALL)
    rival.command("CLIENT", "PAUSE", 1500, "ALL", key="")
    assert wait_until(lambda: not lock.owned(), seconds=LEASE.total_seconds() + 1)
    with suppress(OnceMQError):
        lock.release()
    other = Lock(rival, fresh)
    assert other.acquire(timedelta(seconds=10))
    other.release()


def test_a_unit_whose_lock_is_forgotten_takes_effect_once(clients, sqlite_database, fresh, monkeypatch):
    """It is rolled back and comes again; a copy of what was applied stays a duplicate, although Redis knows nothing."""
    client, rival = clients
    engine = make_engine(sqlite_database)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (id INTEGER)"))
    tries: list[int] = []
    lost, keeper = threading.Event(), client.shared(Keeper)
    lose = keeper.lose
    monkeypatch.setattr(keeper, "lose", lambda holding: (lose(holding), lost.set()))

    def handler(order: dict, session: Session) -> None:
        tries.append(order["id"])
        session.execute(text("INSERT INTO effects VALUES (:id)"), order)
        if len(tries) == 1:
            forget(rival, "flush")
            assert lost.wait(5)

    lock = build(RedisLock, engine, "c", {"name": f"{fresh}-{{key}}"}, redis=client)
    lock._locks._lease = 300
    bench = UnitBench(engine, handler, lock, build(UniqueKey, engine, "c"))
    message = {"id": 1, "key": "k"}
    assert bench.run(message) == ["deferred"]
    assert bench.run(message) == ["applied"]
    forget(rival, "flush")
    assert bench.run(message) == ["duplicate"]
    with engine.connect() as connection:
        assert list(connection.execute(text("SELECT id FROM effects")).scalars()) == [1]
    assert tries == [1, 1]
    engine.dispose()
