"""The purge is gentle while it can be, and fast when it must."""

from datetime import timedelta

import pytest

from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep.pace import GENTLE, Pace

STEP, BATCH = 0.01, 1000
"""Seconds for one batch, and its rows: with no rest a hundred thousand rows a second."""
GENTLY = BATCH / STEP / (1 + GENTLE)
MOST_SECONDS = 3600


class Table:
    """Old rows that are purged while new ones come.

    Args:
        old: rows that are too old at the beginning.
        each_second: rows that come, and as many that become too old.
    """

    def __init__(self, old: int, each_second: float) -> None:
        self.old: float = old
        self.each_second = each_second
        self.clock = FakeClock()
        self.pace = Pace(self.clock)
        self.worked = 0.0

    def purge(self) -> float:
        """Purge until nothing is too old; returns the seconds that took.

        Raises:
            AssertionError: it never ends.
        """
        while self.old >= BATCH:
            self._pass(STEP)
            self.worked += STEP
            self.old -= BATCH
            self.pace.went(BATCH, lambda seconds, most: min(most, round(seconds * self.each_second)))
            self._pass(STEP * self.pace.rest)
            assert self.clock.monotonic() < MOST_SECONDS, f"{self.old:,.0f} rows are left after an hour"
        self.pace.done()
        return self.clock.monotonic()

    def _pass(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.old += seconds * self.each_second


def test_a_backlog_is_removed_gently_where_little_comes() -> None:
    """A tenth of the time, however much there is: it ends all the same."""
    table = Table(1_000_000, each_second=GENTLY / 2.5)
    seconds = table.purge()
    assert table.worked / seconds == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("each_second", [0.6, 1, 2, 4, 8, 9.5], ids=lambda times: f"{times}-times")
def test_what_is_old_never_piles_up(each_second: float) -> None:
    """Whatever comes, up to all that one thread can delete, a backlog of a million rows has an end."""
    table = Table(1_000_000, each_second * GENTLY)
    assert table.purge() < MOST_SECONDS


def test_it_takes_no_more_than_it_needs() -> None:
    """With twice what a tenth of the time can do, it rests for as long as that leaves, and not less."""
    table = Table(5_000_000, each_second=2 * GENTLY)
    seconds = table.purge()
    assert 0.3 < table.worked / seconds < 0.8


def test_it_becomes_gentle_again() -> None:
    """When less comes, and each time that nothing old is left."""
    table = Table(3_000_000, each_second=4 * GENTLY)
    pace = table.pace
    for _ in range(6):
        table.clock.advance(timedelta(seconds=11))
        pace.went(BATCH, lambda _seconds, most: most)
    assert pace.rest == 0.0
    for _ in range(7):
        table.clock.advance(timedelta(seconds=11))
        pace.went(BATCH, lambda _seconds, _most: 0)
    assert pace.rest == GENTLE
    table.clock.advance(timedelta(seconds=11))
    pace.went(BATCH, lambda _seconds, most: most)
    assert pace.rest == GENTLE / 2
    pace.done()
    assert pace.rest == GENTLE
