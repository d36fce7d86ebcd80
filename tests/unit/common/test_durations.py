"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.common.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("1.5m", timedelta(seconds=90)),
        (" 4 h ", timedelta(hours=4)),
        ("7d", timedelta(days=7)),
    ],
)
def test_a_number_and_a_unit_is_a_duration(text: str, duration: timedelta) -> None:
    """Every unit is understood, with fractions and spaces."""
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "5 s 3",
        "-1s",
        "0s",
        "0.0001ms",
        "1e3s",
        "5S",
        "1w",
        "5\u0661s",
        "9" * 400 + "d",
        "9" * 20 + "d",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Zero, signs, other units and lengths beyond what can be held are a ValueError that repeats the text."""
    with pytest.raises(ValueError) as refusal:
        parse_duration(text)
    assert repr(text) in str(refusal.value)


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=100_000)))
def test_what_is_formatted_can_be_parsed(duration: timedelta) -> None:
    """A formatted duration reads back, within the three digits that are shown."""
    assert abs(parse_duration(format_duration(duration)) - duration) <= duration * 0.0051


def test_a_thousand_days_have_no_exponent() -> None:
    """A long duration is shown as people write it."""
    assert format_duration(timedelta(days=1234)) == "1234d"


def test_almost_a_second_has_no_exponent() -> None:
    """Rounding up to a thousand milliseconds is shown as such."""
    assert format_duration(timedelta(microseconds=999_900)) == "1000ms"
