"""What a process does with its part of a shared rate; Redis answers here what a test needs at that moment."""

import threading
from collections.abc import Callable
from datetime import timedelta

from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.rates.rule import RateRule
from oncemq.engine.rates.shared_rate import SharedRate
from oncemq.errors import RedisUnavailable
from oncemq.testing.fake_clock import FakeClock
from support.queued import put

Answer = Callable[[], list[int]]


class Answering:
    """A Redis whose answers a test gives: a real one does not fail every second time."""

    def __init__(self, answer: Answer) -> None:
        self.asked = 0
        self._answer = answer

    def call(self, _call: object) -> list[int]:
        """Return the test's answer."""
        self.asked += 1
        return self._answer()


def limit_of(rule: RateRule, redis: Answering, clock: FakeClock, said: list[str]) -> SharedRate:
    """Return a process's part of the rate."""
    return SharedRate(rule, redis, "shop.pay", clock, said.append)  # type: ignore[arg-type]


def test_a_process_without_messages_asks_for_none() -> None:
    """At one an hour the others would wait for an hour for what it keeps."""
    clock, redis = FakeClock(), Answering(lambda: [1, 0])
    scheduler = Scheduler(clock)
    scheduler.rate_limit = limit_of(RateRule(1 / 3600, 1, shared=True), redis, clock, [])
    assert scheduler.take(1, 0.001) == []
    assert redis.asked == 0
    put(scheduler, 1)
    assert len(scheduler.take(1, 0.001)) == 1


def test_a_take_that_must_not_wait_asks_nothing() -> None:
    """The event loop of async handlers takes so: it would stand until Redis answers."""
    clock, redis = FakeClock(), Answering(lambda: [1, 0])
    scheduler = Scheduler(clock)
    scheduler.rate_limit = limit_of(RateRule(1.0, 1, shared=True), redis, clock, [])
    put(scheduler, 1)
    assert scheduler.take(1, 0.0) == []
    assert redis.asked == 0


def test_what_was_not_used_is_not_saved_up() -> None:
    """The bucket has renewed it: both would be more than a burst."""
    clock = FakeClock()
    limit = limit_of(RateRule(100.0, 10, shared=True), Answering(lambda: [10, 0]), clock, [])
    limit.prepare()
    assert limit.allowance() == 10
    clock.advance(timedelta(seconds=5))
    assert limit.allowance() == 0
    limit.prepare()
    assert limit.allowance() == 10


def test_a_redis_that_fails_every_second_time_allows_no_more_than_the_rate() -> None:
    """Each failure would otherwise be a burst, and a warning."""
    clock, said, turns = FakeClock(), list[str](), iter(range(100_000))

    def answer() -> list[int]:
        if next(turns) % 2:
            return [0, 0]
        raise RedisUnavailable("no answer")

    limit = limit_of(RateRule(1.0, 100, shared=True), Answering(answer), clock, said)
    count = 0
    for _ in range(580):
        limit.prepare()
        allowed = max(0, limit.allowance())
        limit.spend(allowed)
        count += allowed
        clock.advance(timedelta(milliseconds=100))
    assert 100 <= count <= 160
    assert len(said) == 1


def test_a_slow_failure_is_not_repeated_soon() -> None:
    """Two seconds of each three would be spent waiting for Redis."""
    clock = FakeClock()

    def answer() -> list[int]:
        clock.advance(timedelta(seconds=2))
        raise RedisUnavailable("no answer")

    redis = Answering(answer)
    limit = limit_of(RateRule(100.0, 10, shared=True), redis, clock, [])
    limit.prepare()
    for _ in range(9):
        clock.advance(timedelta(seconds=1))
        limit.prepare()
    assert redis.asked == 1
    clock.advance(timedelta(seconds=1))
    limit.prepare()
    assert redis.asked == 2


def test_workers_do_not_poll_while_another_asks() -> None:
    """They wait longer the longer there is no answer."""
    clock = FakeClock()
    asked, answered = threading.Event(), threading.Event()

    def answer() -> list[int]:
        asked.set()
        assert answered.wait(60)
        return [1, 0]

    limit = limit_of(RateRule(1.0, 1, shared=True), Answering(answer), clock, [])
    asking = threading.Thread(target=limit.prepare)
    asking.start()
    assert asked.wait(60)
    assert limit.wait() == 0.001
    clock.advance(timedelta(seconds=1))
    limit.prepare()
    assert limit.wait() == 1.0
    answered.set()
    asking.join(60)
    assert limit.allowance() == 1


def test_two_threads_that_find_none_left_ask_once() -> None:
    """Two answers together would be a unit above the burst."""
    redis = Answering(lambda: [1, 0])
    limit = limit_of(RateRule(1.0, 1, shared=True), redis, FakeClock(), [])
    limit._asking = _AskedBefore(limit.prepare)  # type: ignore[assignment]
    limit.prepare()
    assert (redis.asked, limit.allowance()) == (1, 1)


class _AskedBefore:
    """A lock before whose first acquisition another thread has asked."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask: Callable[[], None] | None = ask
        self._lock = threading.Lock()

    def acquire(self, *, blocking: bool) -> bool:
        """Let the other thread ask first."""
        if self._ask is not None:
            ask, self._ask = self._ask, None
            ask()
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """As of a lock."""
        self._lock.release()
