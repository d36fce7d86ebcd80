"""Attempts and the pauses between them."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.retry.backoff import RetryPolicy

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 4), (3, 16), (6, 600), (50, 600)])
def test_pauses_grow_by_the_factor_up_to_the_longest(attempt: int, seconds: int) -> None:
    """Without jitter each pause is four times the one before, and none above ten minutes."""
    assert RetryPolicy(jitter=0).pause(attempt, random.Random(1)) == seconds * SECOND


@given(st.integers(1, 10**9), st.floats(0, 1), st.floats(1, 1000))
def test_a_pause_stays_within_the_jitter(attempt: int, jitter: float, factor: float) -> None:
    """Whatever attempt a forged header claims, the pause is bounded and comes at once."""
    policy = RetryPolicy(jitter=jitter, factor=factor)
    assert timedelta(0) <= policy.pause(attempt, random.Random(1)) <= policy.max * (1 + jitter)


def test_the_first_pause_is_not_above_the_longest() -> None:
    """A first pause longer than the longest is cut, too."""
    assert RetryPolicy(first=10 * SECOND, max=SECOND, jitter=0).pause(1, random.Random(1)) == SECOND


def test_the_horizon_is_the_sum_of_the_longest_pauses() -> None:
    """Three tries have two pauses, each at its upper end."""
    assert RetryPolicy(attempts=3, jitter=0.2).horizon() == 6 * SECOND


def test_one_attempt_has_no_horizon() -> None:
    """Without a second try there is no pause."""
    assert RetryPolicy(attempts=1).horizon() == timedelta(0)


def test_the_longest_pause_is_the_last_one_at_its_upper_end() -> None:
    """It stops growing at the maximum; a single try has none."""
    assert RetryPolicy(attempts=3, jitter=0.2).longest_pause() == 4.8 * SECOND
    assert RetryPolicy(attempts=9, max=10 * SECOND, jitter=0).longest_pause() == 10 * SECOND
    assert RetryPolicy(attempts=1).longest_pause() == timedelta(0)


@pytest.mark.parametrize(
    ("said", "attempts"),
    [("1", 1), (" 2 ", 2), ("003", 3), ("4", 4), ("5", 4), ("999999999", 4)]
    + [
        (text, 4)
        for text in ("", "0", "-1", "1.5", "two", "\N{ARABIC-INDIC DIGIT ONE}", "1" * 5000, "1e0", "nan")
    ],
)
def test_what_a_producer_asks_for_is_bounded(said: str, attempts: int) -> None:
    """Fewer attempts are granted, more are not; what is no whole number of 1 or more asks for nothing."""
    assert RetryPolicy(attempts=4, asked_in="attempts").attempts_of({"attempts": said}) == attempts


def test_producers_have_no_say_by_themselves() -> None:
    """Neither without the option, nor without the header."""
    assert RetryPolicy(attempts=4).attempts_of({"attempts": "1", "": "1"}) == 4
    assert RetryPolicy(attempts=4, asked_in="attempts").attempts_of({}) == 4
