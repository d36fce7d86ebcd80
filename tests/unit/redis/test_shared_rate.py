"""A rate that all processes share, on a real Redis and a Redis Cluster, by the server's clock."""

import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from oncemq.common.clock import SystemClock
from oncemq.engine.rates.rule import RateRule
from oncemq.engine.rates.shared_rate import SharedRate
from oncemq.errors import RedisUnavailable
from oncemq.redis import RedisClient
from oncemq.redis.connect import make_client
from oncemq.testing.fake_clock import FakeClock
from services.waiting import wait_until
from support.redis.rated import waiting
from support.servers import OwnServer

SLOW = RateRule(0.001, 20, shared=True, text="3.6/h")
"""So slow that nothing is added during a test: the bucket has its burst, and no more."""


def part(client: RedisClient, fresh: str, rule: RateRule, clock: FakeClock, said: list[str]) -> SharedRate:
    """Return a process's part of the rate of one consumer."""
    return SharedRate(rule, client, f"{fresh}.pay", clock, said.append)


def taken(limit: SharedRate, clock: FakeClock, turns: int) -> int:
    """Return how many messages a process may take in so many turns, whose pauses pass here at once."""
    count = 0
    for _ in range(turns):
        limit.prepare()
        found = limit.allowance()
        limit.spend(found)
        count += found
        clock.advance(timedelta(seconds=limit.wait()))
    return count


@pytest.mark.server
def test_processes_share_one_bucket(client: RedisClient, fresh: str) -> None:
    """Together they take what one alone could have taken."""
    clock, said = FakeClock(), list[str]()
    parts = [part(client, fresh, SLOW, clock, said) for _ in range(3)]
    counts = [taken(limit, clock, 12) for limit in parts]
    assert (sum(counts), said) == (20, [])
    assert counts[0] > 0


@pytest.mark.server
def test_each_consumer_has_a_bucket_of_its_own(client: RedisClient, fresh: str) -> None:
    """One that is used up slows no other."""
    clock, said = FakeClock(), list[str]()
    assert taken(part(client, fresh, SLOW, clock, said), clock, 30) == 20
    assert taken(part(client, f"{fresh}-other", SLOW, clock, said), clock, 30) == 20


@pytest.mark.server
def test_the_bucket_fills_by_the_servers_clock(client: RedisClient, fresh: str) -> None:
    """An empty one says when it has the next message, and has it then."""
    clock, rule = FakeClock(), RateRule(20.0, 1, shared=True, text="20/s")
    limit = part(client, fresh, rule, clock, [])
    assert taken(limit, clock, 1) == 1
    limit.prepare()
    assert limit.allowance() == 0
    assert 0 < limit.wait() <= 0.05
    began = monotonic()
    while not taken(limit, clock, 1):
        Event().wait(0.005)
        assert monotonic() - began < 5


@pytest.mark.server
def test_two_processes_together_keep_to_the_rate(any_redis_url: str, fresh: str) -> None:
    """Each takes its part; both together no more than one alone could, and what each may keep."""
    command = [sys.executable, "-m", "support.redis.rated", any_redis_url, f"{fresh}.pay", "50", "1.5"]
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=60)[0].split() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(60)
    counts = [int(words[0]) for words in said]
    seconds = max(float(words[2]) for words in said) - min(float(words[1]) for words in said)
    assert min(counts) > 0
    assert sum(counts) <= 50 * seconds + 1 + len(counts)


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_consumer_goes_on_while_a_real_redis_is_away(own_redis: OwnServer, fresh: str, how: str) -> None:
    """Killed, or frozen with open connections; it says so once, and shares again afterwards."""
    server, clock, said = own_redis(), SystemClock(), list[str]()
    scheduler, rule = waiting(clock, 5_000), RateRule(100.0, 5, shared=True, text="100/s")
    with closing(make_client(server.url, timeout=timedelta(milliseconds=200))) as client:
        limit = scheduler.rate_limit = part(client, fresh, rule, clock, said)  # type: ignore[arg-type]

        def takes() -> int:
            found = scheduler.take(500, 0.05)
            scheduler.done(found)
            assert len(found) <= 5
            return len(found)

        assert wait_until(lambda: takes() > 0, seconds=30)
        getattr(server, how)()
        assert wait_until(lambda: takes() > 0 and bool(said), seconds=30)
        assert all(wait_until(lambda: takes() > 0, seconds=30) for _ in range(10))
        if how == "kill":
            server.start()
        server.resume()
        assert wait_until(lambda: takes() >= 0 and not limit._alone, seconds=30)
    assert len(said) == 1


class Silent:
    """A Redis that can be away; the real one cannot be stopped beside other tests."""

    def __init__(self) -> None:
        self.away = True

    def call(self, _call: object) -> list[int]:
        """Return what the script does: nothing is left for an hour."""
        if self.away:
            raise RedisUnavailable("no answer")
        return [0, 3_600_000]


def test_each_process_keeps_to_the_rate_alone_while_redis_is_away(fresh: str) -> None:
    """It says so once, asks again each second, and shares again when there is an answer."""
    clock, said, redis = FakeClock(), list[str](), Silent()
    rule = RateRule(100.0, 5, shared=True, text="100/s")
    limit = SharedRate(rule, redis, f"{fresh}.pay", clock, said.append)  # type: ignore[arg-type]
    assert 4 <= taken(limit, clock, 5) <= 10
    assert said == [
        f"the rate of {fresh}.pay, 100/s, is not shared while Redis is away: each process keeps to it by itself: no answer"
    ]
    redis.away = False
    clock.advance(timedelta(seconds=2))
    assert taken(limit, clock, 1) == 0
    assert limit.wait() > 3000 or taken(limit, clock, 1) == 0
