"""Many contenders for few locks: one at a time, for as many acquisitions as there is time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from oncemq.redis.connect import make_client
from storm.attack import lock_crowd
from storm.attack.lock_crowd import LOCKS, Inside

TURNS = int(os.environ.get("ONCEMQ_STORM_ACQUISITIONS", "10000"))
CONTENDERS, PROCESSES = 20, 2
SECONDS = max(240, TURNS // 100)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS)]


def test_who_meets_is_seen(tmp_path, monkeypatch):
    """By both; the memory would be worth nothing if it were not. And no one is seen who comes later."""
    mine, other = Inside(tmp_path / "inside"), Inside(tmp_path / "inside")
    assert mine.visit(0, 1)
    assert other.visit(0, 2)
    theirs: list[bool] = []

    def meet(_pause: float) -> None:
        monkeypatch.undo()
        theirs.append(other.visit(0, 2))

    monkeypatch.setattr(lock_crowd.time, "sleep", meet)
    assert not mine.visit(0, 1)
    assert theirs == [False]
    assert mine.count() < 4


def test_contenders_never_meet(any_redis_url, fresh, tmp_path):
    """Twenty owners in two processes, thousands of acquisitions: one at a time, and no key is left."""
    file = tmp_path / "inside"
    inside, began = Inside(file), time.monotonic()
    each = TURNS // CONTENDERS
    with crowd(any_redis_url, fresh, file, each) as processes:
        met = [json.loads(process.communicate(timeout=SECONDS)[0]) for process in processes]
    took = time.monotonic() - began
    assert met == [0] * PROCESSES
    assert inside.count() == each * CONTENDERS
    with closing(make_client(any_redis_url)) as client:
        names = [f"{fresh}-{lock}" for lock in range(LOCKS)]
        assert [client.command("EXISTS", name, key=name) for name in names] == [0] * LOCKS
    formation = "cluster" if "cluster" in any_redis_url else "server"
    report({"test": f"locks {formation}", "acquisitions": inside.count(), "seconds": round(took, 1)})


@contextmanager
def crowd(url: str, prefix: str, file: Path, each: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the processes of contenders, each of whom wants so many acquisitions; none outlives the test."""
    share = CONTENDERS // PROCESSES
    with ExitStack() as ends:
        started = []
        for first in range(0, CONTENDERS, share):
            command = [sys.executable, lock_crowd.__file__, prefix, file, first, share, each]
            process = ends.enter_context(
                subprocess.Popen(
                    list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            ends.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(f"{url}\n")
            process.stdin.flush()
            started.append(process)
        yield started


def report(row: dict[str, object]) -> None:
    """Leave the numbers where `make storm` and people find them."""
    with Path(os.environ.get("ONCEMQ_STORM_REPORT", os.devnull)).open("a") as file:
        file.write(json.dumps(row) + "\n")
