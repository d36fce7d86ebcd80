"""What Redis locks cost: one after the other, a unit's at once, beside redis-py's Lock and Redisson's; and waking up."""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from benchmarks.stage.servers import ROOT, Servers
from oncemq.redis.address import parse_address
from oncemq.redis.connect import make_client
from oncemq_strategies.redis_lock.unit_locks import Tried, UnitLocks
from oncemq_strategies.redisson import Lock
from oncemq_strategies.redisson.names import channel_of

PAIRS = "pairs_a_second"
"""The figure: acquisitions with their releases."""
_PAIRS = 3000
_LOCKS = 50
_IN_A_UNIT = 100
_WAKE_UPS = 60
_NOW = timedelta(0)
_REDISSON = "4.7.0"
_CLASS_PATH = f"from interop.redisson import class_path; print(class_path({_REDISSON!r}))"


def single(servers: Servers, scale: float) -> dict[str, float]:
    """Return how many pairs of ours one thread does, one lock after the other."""
    client = make_client(url_of(servers))

    def pair(number: int) -> None:
        lock = Lock(client, f"bench-{number % _LOCKS}")
        lock.acquire(_NOW)
        lock.release()

    try:
        return _timed(pair, round(_PAIRS * scale))
    finally:
        client.close()


def unit(servers: Servers, scale: float) -> dict[str, float]:
    """Return the same, where the locks of a unit are acquired and released at once."""
    client = make_client(url_of(servers))
    locks = UnitLocks(client, lease=None, fenced=False, replicas=0)
    names = [f"bench-unit-{number}" for number in range(_IN_A_UNIT)]

    def pairs(_number: int) -> None:
        tried = Tried()
        locks.acquire(names, uuid4().hex, tried)
        locks.release(tried.held.values())

    try:
        return _timed(pairs, round(5 * _PAIRS * scale) // _IN_A_UNIT, each=_IN_A_UNIT)
    finally:
        client.close()


def redis_py(servers: Servers, scale: float) -> dict[str, float]:
    """Return the same of redis-py's own lock, one after the other."""
    import redis  # noqa: PLC0415 - an optional package

    client: Any = redis.Redis.from_url(url_of(servers))

    def pair(number: int) -> None:
        lock = client.lock(f"bench-py-{number % _LOCKS}", timeout=30)
        lock.acquire(blocking=False)
        lock.release()

    try:
        return _timed(pair, round(_PAIRS * scale))
    finally:
        client.close()


def redisson(servers: Servers, scale: float) -> dict[str, float]:
    """Return the same of Redisson in Java, one thread, warmed up by as many pairs."""
    address = parse_address(url_of(servers))
    (host, port), *_ = address.places
    classes = _output([sys.executable, "-c", _CLASS_PATH], PYTHONPATH=str(ROOT / "tests"))
    program = ["java", "-cp", classes, "benchmarks/peers/RedissonLock.java", f"{host}:{port}"]
    password = {"BENCH_REDIS_PASSWORD": address.password} if address.password else {}
    rate = _output([*program, str(round(_PAIRS * scale))], **password)
    return {PAIRS: float(rate)}


def wake_up(servers: Servers, scale: float) -> dict[str, float]:
    """Return the median milliseconds from a release to the acquisition by who waited, in another client."""
    clients = [make_client(url_of(servers)) for _ in range(2)]
    try:
        waits = [_woken(number, *clients) for number in range(max(10, round(_WAKE_UPS * scale)))]
    finally:
        for client in clients:
            client.close()
    return {"wake_up_ms": statistics.median(waits)}


def url_of(servers: Servers) -> str:
    """Return the URL of the single Redis server.

    Raises:
        RuntimeError: there is none.
    """
    if servers.redis is None:
        raise RuntimeError("ONCEMQ_TEST_REDIS is not set: run `make services` first")
    return servers.redis


def _timed(act: Callable[[int], None], times: int, each: int = 1) -> dict[str, float]:
    for number in range(times // 10 + 1):
        act(number)
    began = time.perf_counter()
    for number in range(times):
        act(number)
    return {PAIRS: times * each / (time.perf_counter() - began)}


def _until_heard(client: Any, name: str) -> None:
    give_up = time.monotonic() + 10
    while not client.command("PUBSUB", "NUMSUB", channel_of(name), key=name)[1]:
        if time.monotonic() > give_up:
            raise RuntimeError("no client waits for the lock")
        time.sleep(0.001)


def _woken(number: int, client: Any, other: Any) -> float:
    name, got = f"bench-wake-{number}", []
    lock = Lock(client, name)
    lock.acquire(_NOW)

    def wait() -> None:
        with Lock(other, name):
            got.append(time.perf_counter())

    waiter = threading.Thread(target=wait)
    waiter.start()
    _until_heard(client, name)
    released = time.perf_counter()
    lock.release()
    waiter.join()
    return (got[0] - released) * 1000


def _output(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr[-3000:]}")
    return done.stdout.split()[-1]
