"""Many contenders for one lock: one at a time, for as many acquisitions as there is time."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from oncemq.redis.connect import make_client
from oncemq_strategies.redis import Lock

TURNS = int(os.environ.get("ONCEMQ_STORM_ACQUISITIONS", "2000"))
CONTENDERS = 20
SECONDS = max(120, TURNS // 50)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS)]


def test_contenders_never_meet(any_redis_url, fresh):
    """Twenty owners of several clients, thousands of acquisitions: one at a time, and no key is left."""
    clients = [make_client(any_redis_url) for _ in range(4)]
    inside: list[int] = []
    worst, turns = [0], [0]

    def contend(client) -> None:
        while turns[0] < TURNS:
            with Lock(client, fresh):
                inside.append(1)
                worst[0] = max(worst[0], len(inside))
                turns[0] += 1
                inside.pop()

    threads = [
        threading.Thread(target=contend, args=(clients[n % 4],), daemon=True) for n in range(CONTENDERS)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    took = time.monotonic() - began
    assert turns[0] >= TURNS
    assert worst == [1]
    assert clients[0].command("EXISTS", fresh, key=fresh) == 0
    for client in clients:
        client.close()
    formation = "cluster" if "cluster" in any_redis_url else "server"
    report({"test": f"locks {formation}", "acquisitions": turns[0], "seconds": round(took, 1)})


def report(row: dict[str, object]) -> None:
    """Leave the numbers where `make storm` and people find them."""
    with Path(os.environ.get("ONCEMQ_STORM_REPORT", os.devnull)).open("a") as file:
        file.write(json.dumps(row) + "\n")
