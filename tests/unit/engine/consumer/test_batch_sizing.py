"""The size of units: the rule itself, how soon it settles, and how failures make units smaller."""

import pytest

from oncemq.engine.consumer.batch_sizing import SAVEPOINT_COST, BatchSize, FailureRate, SavepointPolicy

WANTED = 0.05


def sized(limit: int, cap: int = 500) -> BatchSize:
    """Return a size that stands at `limit`."""
    size = BatchSize(WANTED, cap)
    size.limit = limit
    return size


def after(limit: int, *, taken: int, done: int, seconds: float, cap: int = 500) -> int:
    """Return the limit after one unit."""
    size = sized(limit, cap)
    size.learn(taken=taken, done=done, seconds=seconds)
    return size.limit


def test_starts_with_one() -> None:
    """Nothing is known at first, so the first unit is one message."""
    assert BatchSize(WANTED, 500).limit == 1


def test_a_unit_in_time_keeps_the_limit() -> None:
    """Between r = 0.8 and r = 1.25 nothing changes."""
    assert [after(40, taken=40, done=40, seconds=WANTED / r) for r in (0.81, 1.0, 1.24)] == [40, 40, 40]


def test_a_long_unit_shrinks_it_at_once() -> None:
    """With r < 0.8: done · √r."""
    assert after(40, taken=40, done=40, seconds=WANTED / 0.25) == 20


def test_a_long_unit_that_was_not_full_shrinks_it_too() -> None:
    """What counts is what was done."""
    assert after(100, taken=16, done=16, seconds=WANTED / 0.25) == 8


def test_a_unit_cut_short_shrinks_it_to_what_was_done() -> None:
    """Cut short, in whatever time: done · √min(1, r)."""
    assert after(40, taken=40, done=10, seconds=WANTED / 4) == 10
    assert after(40, taken=40, done=10, seconds=WANTED / 0.49) == 7


def test_a_short_full_unit_doubles_it_at_most() -> None:
    """Full and r > 1.25: limit · min(2, √r)."""
    assert after(40, taken=40, done=40, seconds=WANTED / 100) == 80
    assert after(40, taken=40, done=40, seconds=WANTED / 2.25) == 60


def test_growth_is_at_least_one() -> None:
    """A limit of 1 grows although √r is less than 2."""
    assert after(1, taken=1, done=1, seconds=WANTED / 1.3) == 2


def test_a_unit_that_was_not_full_never_grows_it() -> None:
    """Few messages in little time say nothing about many."""
    assert after(40, taken=39, done=39, seconds=WANTED / 100) == 40


def test_it_never_exceeds_its_cap() -> None:
    """The batch limit of the configuration holds."""
    assert after(40, taken=40, done=40, seconds=0.0001, cap=50) == 50


def test_it_never_falls_below_one() -> None:
    """A single message that takes for ever is still a unit."""
    assert after(1, taken=1, done=1, seconds=100.0) == 1


@pytest.mark.parametrize(("item", "units"), [(0.0001, 10), (0.05, 1), (0.005, 10)])
def test_it_settles_soon_and_stays(item: float, units: int) -> None:
    """At 0.1 ms per message it settles in ten units, at 50 ms in one, and does not swing afterwards."""
    size, limits = BatchSize(WANTED, 500), []
    for _ in range(40):
        size.learn(taken=size.limit, done=size.limit, seconds=size.limit * item)
        limits.append(size.limit)
    settled = limits[units - 1]
    assert limits[units - 1 :] == [settled] * (40 - units + 1)
    assert WANTED / (settled * item) >= 0.8 or settled == 1


@pytest.mark.parametrize(("rate", "about"), [(0.01, 75), (0.1, 25)])
def test_frequent_failures_make_smaller_units(rate: float, about: int) -> None:
    """About 75 messages at 1 % and 25 at 10 % of failures."""
    failures = FailureRate()
    for _ in range(400):
        failures.learn(items=100, failures=round(100 * rate))
    assert failures.cap(500) == pytest.approx(about, rel=0.1)


@pytest.mark.parametrize(("rate", "about"), [(0.01, 40), (0.1, 12)])
def test_frequent_failures_make_smaller_parts(rate: float, about: int) -> None:
    """A savepoint costs less than a transaction, so parts are smaller: about 40 messages at 1 % and 12 at 10 %."""
    failures = FailureRate(SAVEPOINT_COST)
    for _ in range(400):
        failures.learn(items=100, failures=round(100 * rate))
    assert failures.cap(500) == pytest.approx(about, rel=0.1)


def test_without_failures_the_limit_stays() -> None:
    """Failures long past do not count."""
    failures = FailureRate()
    failures.learn(items=100, failures=3)
    for _ in range(100):
        failures.learn(items=100, failures=0)
    assert failures.cap(500) == 500


def learned(units: int = 400, **of_hundred: int) -> SavepointPolicy:
    """Return what a worker knows after so many units of a hundred items."""
    undoing = SavepointPolicy()
    for _ in range(units):
        undoing.learn(items=100, **{"spoke": 0, "late": 0, "others": 0, **of_hundred})
    return undoing


def test_where_only_failing_handlers_speak_each_has_its_own_savepoint() -> None:
    """The others leave all to the flush and pay nothing; units stay whole."""
    undoing = learned(spoke=10, late=10)
    assert undoing.guarded
    assert undoing.savepoint_every(500) is None


def test_where_all_handlers_speak_parts_cost_less() -> None:
    """A savepoint for every handler would cost more than running a part again now and then."""
    undoing = learned(spoke=100, late=1)
    assert not undoing.guarded
    assert undoing.savepoint_every(500) == pytest.approx(40, rel=0.1)


def test_what_no_savepoint_of_a_handler_undoes_still_makes_parts() -> None:
    """Failures of the flush are no one's call: beside guarded handlers they need parts."""
    undoing = learned(spoke=2, late=1, others=1)
    assert undoing.guarded
    assert undoing.savepoint_every(500) == pytest.approx(40, rel=0.1)


def test_without_failures_nothing_is_guarded() -> None:
    """Handlers that speak and succeed need no savepoint."""
    undoing = learned(spoke=1)
    assert not undoing.guarded
    assert undoing.savepoint_every(500) is None
