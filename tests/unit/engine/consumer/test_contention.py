"""When units run one at a time, and when side by side again."""

from datetime import timedelta

from oncemq.engine.consumer.contention import Contention
from oncemq.testing.fake_clock import FakeClock

FIRST = 50


def succeed(lane: Contention, times: int) -> list[bool]:
    """Let so many units commit; returns what each was told."""
    return [lane.succeeded() for _ in range(times)]


def test_units_run_side_by_side_at_first() -> None:
    """Nothing is exclusive before a deadlock."""
    assert not Contention().exclusive


def test_a_deadlock_makes_units_exclusive() -> None:
    """After a deadlock the next unit must be alone."""
    lane = Contention()
    assert lane.deadlocked()
    assert lane.exclusive


def test_only_the_first_deadlock_is_news() -> None:
    """A sibling's deadlock in an exclusive stretch changes nothing and is not told again."""
    lane = Contention()
    assert [lane.deadlocked(), lane.deadlocked()] == [True, False]


def test_the_first_stretch_ends_after_its_units() -> None:
    """After the first stretch units run concurrently again, and that is told once."""
    lane = Contention()
    lane.deadlocked()
    assert succeed(lane, FIRST) == [False] * (FIRST - 1) + [True]
    assert not lane.exclusive


def test_a_deadlock_soon_after_doubles_the_stretch() -> None:
    """A probe that fails early makes the next one later."""
    lane = Contention()
    lane.deadlocked()
    succeed(lane, FIRST)
    lane.deadlocked()
    succeed(lane, 2 * FIRST - 1)
    assert lane.exclusive
    assert lane.succeeded()


def test_a_deadlock_after_a_long_peace_starts_over() -> None:
    """After as many free units as the stretch was long, the next stretch is the first one again."""
    lane = Contention()
    lane.deadlocked()
    succeed(lane, FIRST)
    lane.deadlocked()
    succeed(lane, 2 * FIRST)
    succeed(lane, 2 * FIRST)
    lane.deadlocked()
    assert succeed(lane, FIRST)[-1]


def test_stretches_have_a_longest() -> None:
    """However often it fails, a probe comes within 5,000 units."""
    lane = Contention()
    for _ in range(12):
        lane.deadlocked()
        while lane.exclusive:
            lane.succeeded()
    lane.deadlocked()
    assert succeed(lane, 5000)[-1]


def test_it_counts_commits() -> None:
    """Committed units of all siblings are counted, exclusive or not."""
    lane = Contention()
    succeed(lane, 2)
    lane.deadlocked()
    succeed(lane, 3)
    assert lane.commits == 5


def test_a_stretch_lasts_twenty_times_what_the_deadlock_cost() -> None:
    """However fast its units are: PostgreSQL needs a second to find a deadlock, and trying again soon costs another."""
    clock = FakeClock()
    lane = Contention(clock.monotonic)
    lane.deadlocked(1.0)
    clock.advance(timedelta(seconds=19))
    assert succeed(lane, 10 * FIRST)[-1] is False
    clock.advance(timedelta(seconds=2))
    assert lane.succeeded()
    assert not lane.exclusive


def test_a_slow_unit_makes_the_next_one_look_at_the_other_processes() -> None:
    """Once: what took long may have waited for another process's exclusive unit."""
    lane = Contention()
    lane.ran(0.05)
    assert not lane.must_look()
    lane.ran(1.2)
    assert [lane.must_look(), lane.must_look()] == [True, False]


def test_exclusive_units_do_not_look() -> None:
    """They wait for the others anyway."""
    lane = Contention()
    lane.deadlocked()
    lane.ran(5.0)
    assert not lane.must_look()


def test_joining_others_lasts_as_if_it_had_been_its_own_deadlock() -> None:
    """The slow unit has cost this process as much as the victim."""
    clock = FakeClock()
    lane = Contention(clock.monotonic)
    lane.ran(1.0)
    assert lane.joined_others()
    clock.advance(timedelta(seconds=19))
    assert succeed(lane, 10 * FIRST)[-1] is False
