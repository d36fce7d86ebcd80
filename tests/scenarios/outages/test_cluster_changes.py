"""A Redis Cluster whose slots move and whose masters die under locks, marks and flags: nothing lost, nothing double, no hang."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from oncemq.contracts.verdict import Outcome
from oncemq.errors import RedisUnavailable
from oncemq.redis.client import RedisClient
from oncemq.redis.connect import make_client
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec
from oncemq_strategies.redis_lock.strategy import RedisLock
from oncemq_strategies.redisson import FairLock, FencedLock, Lock, NotHeld
from oncemq_strategies.tiered.strategy import Tiered
from services import catalog
from services.servers.redis_cluster import RedisCluster
from services.waiting import wait_until
from support.database.ledgers import BOOKED, ledger_engine
from support.redis.contender import Contender, master_of, on_replica, waits
from support.redis.moving_slot import MovingSlot
from support.units import UnitBench, build, orders

pytestmark = [pytest.mark.server, pytest.mark.slow]

NOT_AT_ALL = timedelta(0)
LEASE = timedelta(seconds=12)
"""Longer than a replica needs to take over, so that a lock that it knows is not lost by that."""
AT_ONCE = 1.0
"""Seconds within which a waiter is woken: sooner than it would look by itself."""


@pytest.fixture(scope="module")
def servers() -> Iterator[RedisCluster]:
    """A cluster of this module's own."""
    own = catalog.OwnServers(catalog.FOLDER)
    cluster = own.make(RedisCluster)
    assert isinstance(cluster, RedisCluster)
    try:
        cluster.start()
        yield cluster
    finally:
        own.remove(cluster)


@pytest.fixture
def cluster(servers: RedisCluster) -> Iterator[RedisCluster]:
    """The same, with all of its nodes, and again afterwards."""
    # On a busy machine a node may take others for dead, for as long as it hears nothing of them.
    assert wait_until(servers.answers, seconds=30)
    yield servers
    servers.start()


@pytest.fixture
def make(cluster: RedisCluster) -> Iterator[Callable[[], RedisClient]]:
    """Return a function that makes clients, each another process to Redis."""
    clients: list[RedisClient] = []

    def new() -> RedisClient:
        clients.append(make_client(cluster.url))
        return clients[-1]

    yield new
    for client in clients:
        client.close()


@pytest.fixture
def engine(sqlite_database: str) -> Iterator[Engine]:
    """A database with the ledger and a table of payments without any unique constraint."""
    with ledger_engine(sqlite_database, BOOKED) as engine:
        yield engine


def payments(engine: Engine) -> list[str]:
    """Return what was booked."""
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT id FROM payments")).scalars())


def units(engine: Engine, client: RedisClient, fresh: str) -> tuple[UnitBench, Tiered]:
    """Return a worker that books payments under locks, and the strategy that decides."""

    def pay(order: dict[str, str], session: Session) -> None:
        session.execute(text("INSERT INTO payments VALUES (:id)"), {"id": order["id"]})

    lock = build(RedisLock, engine, fresh, {"name": f"{fresh}-{{key}}"}, redis=client)
    tiered: Tiered = build(Tiered, engine, fresh, redis=client)
    return UnitBench(engine, pay, lock, tiered, name=fresh), tiered


def test_a_lock_moves_with_its_slot(cluster, make, fresh, monkeypatch):
    """It is renewed in every stage, no one else gets it, and who waited since before the move is woken by its release."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", timedelta(seconds=3))
    told = threading.Event()
    lock = Lock(make(), fresh, on_loss=told.set)
    assert lock.acquire(NOT_AT_ALL)
    contender, slot = Contender(Lock(make(), fresh)), MovingSlot(make(), cluster.settings.password, fresh)
    assert waits(make(), fresh)
    for stage in (slot.begin, slot.move_keys, slot.end):
        stage()
        assert not told.wait(3.3)  # a lease: by then a lock that no one renews is lost
        assert not contender.got.is_set()
    assert waits(make(), fresh)
    lock.release()
    assert contender.got.wait(AT_ONCE)
    assert contender.ended()


@pytest.mark.parametrize("stage", ["begin", "move_keys"])
def test_a_lock_is_handed_over_while_its_slot_moves(cluster, make, fresh, stage):
    """Releasing and acquiring need nothing but the lock's own key, wherever that is."""
    lock, slot = Lock(make(), fresh), MovingSlot(make(), cluster.settings.password, fresh)
    assert lock.acquire(NOT_AT_ALL)
    contender = Contender(Lock(make(), fresh))
    assert waits(make(), fresh)
    slot.begin()
    if stage == "move_keys":
        slot.move_keys()
    lock.release()
    assert contender.got.wait(AT_ONCE)
    slot.move_keys()
    slot.end()
    assert contender.ended()
    assert not lock.locked()


@pytest.mark.parametrize("kind", [FencedLock, FairLock])
def test_locks_of_several_keys_wait_for_the_end_of_the_move(cluster, make, fresh, kind):
    """While their keys are in two places Redis runs nothing; that is said soon, and afterwards all is as before."""
    lock, slot = kind(make(), fresh), MovingSlot(make(), cluster.settings.password, fresh)
    assert lock.acquire(NOT_AT_ALL)
    lock.release()
    other = kind(make(), fresh)
    slot.begin()
    slot.move_keys()
    began = time.monotonic()
    with pytest.raises(RedisUnavailable, match="cannot do it now") as caught:
        other.acquire(NOT_AT_ALL)
    assert time.monotonic() < began + 2
    assert not caught.value.sent
    slot.end()
    assert lock.acquire(NOT_AT_ALL)
    assert not other.acquire(NOT_AT_ALL)
    lock.release()
    assert other.acquire(NOT_AT_ALL)
    other.release()


def test_units_go_on_while_slots_move(cluster, make, engine, fresh):
    """Locks and marks are found where they are: copies stay off the database, new messages are applied once."""
    bench, tiered = units(engine, make(), fresh)
    assert bench.run(*orders("a")) == ["applied"]
    redis_tier: Any = tiered._tiers._redis
    moving = [
        MovingSlot(make(), cluster.settings.password, key)
        for key in (f"{fresh}-k-a", redis_tier.marks().name("a"))
    ]
    for stage in ("begin", "move_keys", "end"):
        for slot in moving:
            getattr(slot, stage)()
        assert bench.run(*orders("a", stage)) == ["duplicate", "applied"]
    assert payments(engine) == sorted(["a", "begin", "move_keys", "end"])
    assert tiered.figures()["kept_off_database"] == 1.0
    assert bench.failures == []


def test_locks_outlive_their_master(cluster, make, fresh, monkeypatch):
    """One that the replica knows stays its holder's and is waited for; a lost one is told of within a renewal and a second."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", LEASE)
    client, look = make(), make()
    told: dict[str, threading.Event] = {}
    locks = []
    for name in (f"{{{fresh}}}-kept", f"{{{fresh}}}-lost"):
        told[name] = threading.Event()
        locks.append(Lock(client, name, on_loss=told[name].set))
        assert locks[-1].acquire(NOT_AT_ALL)
    kept, lost = locks
    look.command("DEL", lost.name, key=lost.name)  # as if it had never reached the replica
    contender = Contender(Lock(make(), kept.name))
    on_replica(look, fresh)
    cluster.kill_node(master_of(look, fresh))

    def answers() -> bool:
        try:
            return look.command("EXISTS", kept.name, key=kept.name) == 1
        except RedisUnavailable:
            return False

    assert wait_until(answers, seconds=20)
    assert told[lost.name].wait(LEASE.total_seconds() / 3 + 1)
    assert not lost.owned()
    later = Lock(make(), lost.name)
    assert later.acquire(NOT_AT_ALL)
    with pytest.raises(NotHeld):
        lost.release()
    assert later.owned()
    later.release()
    assert kept.owned()
    assert not told[kept.name].is_set()
    assert not contender.got.is_set()
    kept.release()
    assert contender.got.wait(5)
    assert contender.ended()


def test_units_go_on_while_a_master_dies(cluster, make, engine, fresh):
    """What needs a lock of the dead server comes again until a replica has taken over; each message is applied once."""
    bench, tiered = units(engine, make(), fresh)
    messages = orders(*(f"m{number}" for number in range(40)))
    assert bench.run(*messages[:20]) == ["applied"] * 20
    look, doomed = make(), f"{fresh}-k-m0"
    on_replica(look, doomed)  # else a lock that was given back might be held there until its lease ends
    cluster.kill_node(master_of(look, doomed))
    ends: set[str] = set()

    def through() -> bool:
        nonlocal ends
        came = bench.run(*messages)
        ends |= set(came)
        return set(came) <= {"applied", "duplicate"}

    assert wait_until(through, seconds=30)
    assert ends <= {"applied", "duplicate", "returned", "deferred"}
    assert payments(engine) == sorted(order["id"] for order in messages)
    assert wait_until(lambda: bench.run(*messages) and not tiered.figures()["redis_circuit_open"], seconds=40)
    assert payments(engine) == sorted(order["id"] for order in messages)


def test_a_flag_outlives_its_master(cluster, make, sqlite_database, fresh):
    """A handler whose server dies meanwhile is written down by the replica; no copy of its message runs, then or later."""
    ran: list[int] = []
    chain = ChainSpec([("redis_flag", {})], direct=True, redis=cluster.url)
    paying: dict[str, Bench] = {}

    def pay(body: Any, _session: Session) -> dict[str, int]:
        ran.append(body["n"])
        flags: Any = paying["first"].strategies[0]
        [identity] = {identity for mine in flags._flags._mine.values() for identity in mine}
        look, name = make(), flags._flags.name(identity)
        on_replica(look, name)
        cluster.kill_node(master_of(look, name))
        return {"charge": body["n"]}

    for worker in ("first", "second"):
        paying[worker] = Bench(sqlite_database, chain, f"suite.{fresh}", pay)
    assert paying["first"].deliver(message("a", 1)) == [Outcome.PROCEED]
    assert paying["second"].deliver(message("a", 1)) == [Outcome.DUPLICATE]
    assert ran == [1]
    for bench in paying.values():
        bench.close()
