"""What a lock costs: `python -m benchmarks.locks URL` prints pairs of acquire and release a second, beside redis-py's Lock.

Everything runs in one thread against one Redis; rounds alternate, so that what disturbs one disturbs the other.
"""

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from oncemq.redis.address import Formation, parse_address
from oncemq.redis.client import RedisClient
from oncemq.redis.connect import make_client
from oncemq_strategies.redis import Lock
from oncemq_strategies.redis.unit_locks import Tried, UnitLocks

ROUNDS = 7
PAIRS = 1500
IN_A_UNIT = 100
WAKE_UPS = 60
_NOW = timedelta(0)


def measure(url: str) -> dict[str, float]:
    """Return pairs/s of each way, and the median milliseconds from a release to the waiter's acquisition."""
    client, theirs = make_client(url), _redis_py(url)
    ways: dict[str, Callable[[], int]] = {
        "single": lambda: _ours(client),
        "redis_py": lambda: _theirs(theirs),
        "unit_of_100": lambda: _unit(client),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(ROUNDS + 1):
        for name, way in ways.items() if round_number % 2 else reversed(ways.items()):
            began = time.perf_counter()
            pairs = way()
            if round_number:  # the first one warms up
                rates[name].append(pairs / (time.perf_counter() - began))
    found = {name: statistics.median(values) for name, values in rates.items()}
    found["wake_up_ms"] = _wake_up(client, make_client(url))
    client.close()
    theirs.close()
    return found


def _ours(client: RedisClient) -> int:
    for number in range(PAIRS):
        lock = Lock(client, f"bench-{number % 50}")
        lock.acquire(_NOW)
        lock.release()
    return PAIRS


def _theirs(client: Any) -> int:
    for number in range(PAIRS):
        lock = client.lock(f"bench-py-{number % 50}", timeout=30)
        lock.acquire(blocking=False)
        lock.release()
    return PAIRS


def _unit(client: RedisClient) -> int:
    locks = UnitLocks(client, lease=None, fenced=False, replicas=0)
    names = [f"bench-unit-{number}" for number in range(IN_A_UNIT)]
    for _ in range(PAIRS // IN_A_UNIT):
        tried = Tried()
        locks.acquire(names, uuid4().hex, tried)
        locks.release(tried.held.values())
    return PAIRS


def _wake_up(client: RedisClient, other: RedisClient) -> float:
    waits = []
    for number in range(WAKE_UPS):
        name, got = f"bench-wake-{number}", []
        lock = Lock(client, name)
        lock.acquire(_NOW)

        def wait(name: str = name, got: list[float] = got) -> None:
            with Lock(other, name):
                got.append(time.perf_counter())

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.05)
        released = time.perf_counter()
        lock.release()
        waiter.join()
        waits.append((got[0] - released) * 1000)
    return statistics.median(waits)


def _redis_py(url: str) -> Any:
    import redis  # noqa: PLC0415
    from redis.cluster import ClusterNode, RedisCluster  # noqa: PLC0415

    address = parse_address(url)
    if address.formation is Formation.CLUSTER:
        nodes: list[Any] = [ClusterNode(*place) for place in address.places]
        return RedisCluster(startup_nodes=nodes, password=address.password)
    return redis.Redis.from_url(url)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1]), indent=1) + "\n")
