"""Tests of the division of `grace`."""

from datetime import timedelta

import pytest

from oncemq.engine.stop_times import StopTimes


@pytest.mark.parametrize("seconds", [2, 10, 30, 600])
def test_all_of_a_stop_fits_into_the_grace(seconds: int) -> None:
    """Handlers end before everything is closed, and that is before an orchestrator kills."""
    grace = timedelta(seconds=seconds)
    times = StopTimes.of(grace)
    assert times.handlers < times.closed < grace
    assert times.handlers >= grace * 0.75


def test_half_a_minute_is_27_seconds_for_handlers() -> None:
    """The numbers of the documentation are these."""
    times = StopTimes.of(timedelta(seconds=30))
    assert (times.handlers, times.closed) == (timedelta(seconds=27), timedelta(seconds=29))
