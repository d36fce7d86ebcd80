"""Locks while processes are paused and killed and Redis dies: never two holders, no stale write, no lock for ever."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from oncemq.errors import OnceMQError, RedisUnavailable
from oncemq.redis.connect import make_client
from oncemq_strategies.redisson import Lock
from services.waiting import wait_until
from support.servers import OwnServer

CHILD = Path(__file__).with_name("locks_child.py")
LEASE_MS = 600


@pytest.fixture
def database(postgresql_database: str) -> Iterator[Engine]:
    """A guarded row, and a list of what was written to it."""
    engine = create_engine(postgresql_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE guarded (id INT PRIMARY KEY, n INT, token BIGINT, writer INT)"))
        connection.execute(text("INSERT INTO guarded VALUES (1, 0, 0, 0)"))
        connection.execute(text("CREATE TABLE writes (at SERIAL, token BIGINT, writer INT, n INT)"))
    yield engine
    engine.dispose()


def _url(database: Engine) -> str:
    return database.url.render_as_string(hide_password=False)


@pytest.fixture
def workers(any_redis_url: str, database: Engine, fresh: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Three processes that work under one lock."""
    command = [sys.executable, str(CHILD), any_redis_url, fresh, _url(database), str(LEASE_MS)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for worker in started:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    yield started
    for worker in started:
        worker.kill()
        worker.communicate()


def written(database: Engine) -> list[tuple[int, int, int]]:
    """Return token, writer and number of every write, in the order of the commits."""
    with database.begin() as connection:
        return [
            tuple(row) for row in connection.execute(text("SELECT token, writer, n FROM writes ORDER BY at"))
        ]


def test_holders_paused_beyond_their_lease_write_nothing_stale(workers, any_redis_url, database, fresh):
    """Anyone who is stopped for three leases comes back with a token that the row refuses."""
    chance = random.Random(7)
    for _ in range(4):
        before = len(written(database))
        paused = chance.choice(workers)
        paused.send_signal(signal.SIGSTOP)
        assert wait_until(lambda before=before: len(written(database)) > before + 10, seconds=60)
        time.sleep(
            3 * LEASE_MS / 1000
        )  # the lease is a matter of time, and of nothing that could be waited for
        paused.send_signal(signal.SIGCONT)
    before = len(written(database))
    assert wait_until(lambda: len(written(database)) > before + 20, seconds=60)
    rows = written(database)
    tokens = [token for token, _, _ in rows]
    assert tokens == sorted(tokens), "a write with a lower token came after one with a higher"
    assert [n for _, _, n in rows] == list(range(1, len(rows) + 1)), "a write was lost or came twice"
    assert len({writer for _, writer, _ in rows}) == len(workers)


def test_a_killed_holder_stops_no_other_for_long(workers, database):
    """Its lock frees itself, and the others go on."""
    for doomed in workers[:2]:
        doomed.kill()
        before = len(written(database))
        assert wait_until(lambda before=before: len(written(database)) > before + 10, seconds=60)


def test_redis_killed_and_restarted(own_redis: OwnServer, fresh, monkeypatch):
    """The holder learns within its lease that nothing is sure any more; after the restart work goes on."""
    monkeypatch.setattr("oncemq_strategies.redisson.lock.LEASE", timedelta(milliseconds=LEASE_MS))
    server = own_redis()
    client = make_client(server.url)
    told = threading.Event()
    lock = Lock(client, fresh, on_loss=told.set)
    assert lock.acquire(timedelta(0))
    server.kill()
    assert told.wait(LEASE_MS / 1000 + 1)
    assert not lock.owned()
    with pytest.raises(OnceMQError):
        lock.release()
    with pytest.raises(RedisUnavailable):
        Lock(client, fresh).acquire(timedelta(0))
    server.start()
    assert Lock(client, fresh).acquire(timedelta(seconds=10))
    assert client.command("PTTL", fresh, key=fresh) > 0
    client.close()


def test_no_lock_is_without_an_end(own_redis: OwnServer, fresh):
    """Whatever kind, no matter who died in between: every key of a lock has a TTL, counters of tokens excepted."""
    server = own_redis()
    client = make_client(server.url)
    for kind in ("Lock", "FairLock", "FencedLock"):
        code = (
            f"import os, sys; from oncemq_strategies.redisson import {kind} as K\n"
            f"K(sys.stdin.readline().strip(), '{fresh}-{kind}').acquire(); os._exit(9)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], input=server.url + "\n", text=True, capture_output=True, check=False
        )
        assert done.returncode == 9, done.stderr
    keys = [key.decode() for key in client.at(client.routes.masters()[0], "KEYS", "*")]
    endless = [key for key in keys if client.command("PTTL", key, key=key) < 0]
    assert len(keys) >= 3
    assert [key for key in endless if "lock_token" not in key] == []
    client.close()
