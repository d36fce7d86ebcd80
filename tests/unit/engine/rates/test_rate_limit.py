"""A limited consumer takes so many messages a second, and no more."""

from datetime import timedelta

from oncemq.common.clock import SystemClock
from oncemq.engine.consumer.scheduler import Scheduler
from oncemq.engine.rates.rate_limit import Limit, LowestOf, RateLimit, lowest
from oncemq.testing.fake_clock import FakeClock
from support.queued import put, waiting


def taken(clock: FakeClock, scheduler: Scheduler, seconds: int) -> int:
    """Return how many are taken while seconds pass, in steps of a tenth."""
    count = 0
    for _ in range(seconds * 10):
        clock.advance(timedelta(milliseconds=100))
        found = scheduler.take(500, 0.0)
        scheduler.done(found)
        count += len(found)
    return count


def test_it_takes_no_more_than_its_rate() -> None:
    """Within a fifth of a second's messages."""
    clock = FakeClock()
    scheduler = waiting(clock, 2_000)
    scheduler.rate_limit = RateLimit(50, clock)
    assert 500 <= taken(clock, scheduler, 10) <= 510


def test_less_than_one_a_second_is_possible() -> None:
    """It waits for its turn, and is not stopped for good."""
    clock = FakeClock()
    scheduler = waiting(clock, 100)
    scheduler.rate_limit = RateLimit(0.5, clock)
    assert 5 <= taken(clock, scheduler, 10) <= 6


def test_unused_time_is_not_saved_up() -> None:
    """After a quiet hour there is no burst of an hour's messages."""
    clock = FakeClock()
    limit = RateLimit(50, clock)
    clock.advance(timedelta(hours=1))
    assert limit.allowance() == 10


def test_without_a_limit_all_are_taken() -> None:
    """As before."""
    clock = FakeClock()
    scheduler = waiting(clock, 100)
    scheduler.rate_limit = RateLimit(1, clock)
    scheduler.rate_limit = None
    assert len(scheduler.take(500, 0.0)) == 100


def test_a_limit_may_end_while_a_worker_asks() -> None:
    """A breaker's thread takes it away between two looks of the worker, which then takes what is there."""

    class Looked(Scheduler):
        looks = 0

        @property
        def rate_limit(self) -> Limit | None:
            self.looks += 1
            return limit if self.looks == 1 else None

        @rate_limit.setter
        def rate_limit(self, found: Limit | None) -> None: ...

    clock = FakeClock()
    scheduler = Looked(clock)
    limit = RateLimit(1, clock)
    put(scheduler, 3)
    assert len(scheduler.take(500, 1.0)) == 3


def test_a_taker_that_waits_for_its_turn_returns_when_it_comes() -> None:
    """It does not wait for its whole time-out."""
    scheduler = waiting(FakeClock(), 2)
    scheduler.rate_limit = RateLimit(20, SystemClock())
    scheduler.rate_limit.spend(4)
    assert len(scheduler.take(1, 30.0)) == 1


def test_a_burst_is_what_is_saved_up() -> None:
    """However long nothing came."""
    clock = FakeClock()
    limit = RateLimit(0.1, clock, 7)
    clock.advance(timedelta(hours=1))
    assert limit.allowance() == 7


def test_of_several_limits_the_lowest_holds() -> None:
    """A breaker that slows a consumer down does not end its own limit, and the other way round."""
    clock = FakeClock()
    scheduler = waiting(clock, 2_000)
    scheduler.rate_limit = lowest(RateLimit(50, clock), None, RateLimit(10, clock))
    assert 100 <= taken(clock, scheduler, 10) <= 105
    scheduler.rate_limit = LowestOf([RateLimit(20, clock), RateLimit(500, clock)])
    assert 200 <= taken(clock, scheduler, 10) <= 205


def test_without_limits_there_is_none() -> None:
    """A scheduler then asks nothing."""
    assert lowest(None, None) is None
