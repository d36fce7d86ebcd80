"""The grid of fixed delays."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import BrokerRefused
from oncemq.testing.fake_clock import FakeClock
from oncemq_adapters.rabbitmq.topology.delays import (
    LONGEST,
    SHORTEST_MS,
    SILENT_SECONDS,
    SilentQueues,
    all_steps,
    step_of,
)

MILLISECOND = timedelta(milliseconds=1)


@given(st.integers(1, LONGEST // MILLISECOND))
def test_a_step_is_never_shorter_and_a_third_longer_at_most(milliseconds: int) -> None:
    """A message comes back not before its delay, and from 100 ms on at most a third later."""
    step = step_of(milliseconds * MILLISECOND)
    assert step >= milliseconds
    assert step <= max(SHORTEST_MS, milliseconds * 4 / 3 + 1)


@given(st.integers(1, LONGEST // MILLISECOND))
def test_a_step_is_a_step_of_itself(milliseconds: int) -> None:
    """Rounding a second time changes nothing."""
    step = step_of(milliseconds * MILLISECOND)
    if step * MILLISECOND <= LONGEST:
        assert step_of(step * MILLISECOND) == step


def test_few_queues_are_enough() -> None:
    """From 100 ms to 7 d there are at most 70 different delays."""
    week = timedelta(days=7) // MILLISECOND
    steps, milliseconds = set(), 1
    while milliseconds < week:
        steps.add(step_of(milliseconds * MILLISECOND))
        milliseconds += max(1, milliseconds // 100)
    assert len(steps) <= 70


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, 0), (-1, 0), (0.0001, 100), (1, 1000), (1.001, 1200), (9, 10000), (600, 600000)],
)
def test_examples(seconds: float, expected: int) -> None:
    """No delay is no queue; the rest is rounded up."""
    assert step_of(timedelta(seconds=seconds)) == expected


def test_too_long_is_refused() -> None:
    """A delay beyond RabbitMQ's timers is refused with advice, never shortened silently."""
    with pytest.raises(BrokerRefused, match="shorten"):
        step_of(LONGEST + MILLISECOND)


def test_the_longest_delay_fits_the_broker() -> None:
    """The longest step is below the 32 bits that RabbitMQ allows for a time to live."""
    assert step_of(LONGEST) < 2**32


def test_a_queue_that_does_not_confirm_is_replaced_by_the_next_longer_delay() -> None:
    """For ten minutes; then it is tried again."""
    clock = FakeClock()
    silent = SilentQueues(clock.monotonic)
    silent.note("retry.120")
    silent.note("retry.150")
    assert silent.step(120, "retry.{}".format) == 200
    assert silent.step(100, "retry.{}".format) == 100
    clock.advance(timedelta(seconds=SILENT_SECONDS))
    assert silent.step(120, "retry.{}".format) == 120


def test_the_longest_delay_has_no_replacement() -> None:
    """A message waits for its queue rather than for longer than RabbitMQ's timers reach."""
    silent = SilentQueues(FakeClock().monotonic)
    longest = max(all_steps())
    silent.note(f"retry.{longest}")
    assert silent.step(longest, "retry.{}".format) >= longest
