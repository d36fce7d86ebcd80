"""The filter in memory: it forgets nothing before its time."""

from datetime import timedelta

from oncemq_strategies.tiered.memory_filter import local_filter


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self):
        """Return them."""
        return self.now


def made(expected=100, false_positives=0.001):
    """Return a filter and its clock."""
    clock = Clock()
    return local_filter(expected, false_positives, timedelta(seconds=60), clock), clock


def names(start, stop):
    """Return identities."""
    return [f"order-{n}" for n in range(start, stop)]


def test_what_was_added_may_have_been_seen():
    """All of it; of the rest next to nothing."""
    seen, _ = made()
    seen.add(names(0, 100))
    assert seen.maybe(names(0, 100)) == names(0, 100)
    assert len(seen.maybe(names(1000, 2000))) < 20


def test_a_full_filter_is_followed_by_another():
    """Both are asked."""
    seen, _ = made()
    for start in range(0, 300, 50):
        seen.add(names(start, start + 50))
    assert seen.generations == 3
    assert seen.maybe(names(0, 300)) == names(0, 300)


def test_nothing_is_forgotten_before_its_time():
    """A generation goes when its last entry is old enough, and not with its first."""
    seen, clock = made()
    seen.add(names(0, 50))
    clock.now += 50
    seen.add(names(50, 100))
    clock.now += 59
    seen.add(names(100, 200))
    assert seen.maybe(names(0, 100)) == names(0, 100)


def test_old_generations_are_dropped():
    """So that memory ends somewhere."""
    seen, clock = made()
    for round_ in range(20):
        seen.add(names(100 * round_, 100 * round_ + 100))
        clock.now += 40
    assert seen.generations <= 3


def test_faster_than_they_age_the_newest_takes_all():
    """It says "maybe" more often; it forgets nothing and takes no more memory."""
    seen, _ = made()
    for start in range(0, 2000, 100):
        seen.add(names(start, start + 100))
    assert seen.generations == 8
    assert seen.fill > 1.0
    assert seen.maybe(names(0, 2000)) == names(0, 2000)


def test_copies_do_not_fill_it():
    """What a generation has already takes no more room."""
    seen, _ = made()
    for _ in range(10):
        seen.add(names(0, 50))
    assert seen.fill == 0.5
