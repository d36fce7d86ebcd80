"""Durations as people write them: `500ms`, `30s`, `10m`, `4h`, `7d`."""

import re
from datetime import timedelta

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` means; zero is refused because it is never intended.

    Raises:
        ValueError: `text` is not one positive number and one unit.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a duration: write a number and a unit, like 500ms, 30s, 10m, 4h or 7d"
        )
    try:
        duration = float(match[1]) * _UNITS[match[2]]
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long for a duration") from error
    if duration <= timedelta(0):
        raise ValueError(f"{text!r} is not a duration here: it must be longer than zero")
    return duration


LONGEST_DELAY = timedelta(days=3650)
"""Longest wait of a message; beyond it, some databases cannot compute the date."""


def delay_of(value: object) -> timedelta:
    """Return the duration that `value` means: seconds, text such as "5m", or a timedelta; zero means at once.

    Raises:
        TypeError: it is none of these; a bool is not a number of seconds.
        ValueError: it is negative, not finite or longer than ten years, or text that is not a duration.
    """
    if isinstance(value, str):
        delay = parse_duration(value)
    elif isinstance(value, timedelta):
        delay = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        delay = _of_seconds(value)
    else:
        raise TypeError(f'a delay is seconds, text such as "5m" or a timedelta, not {type(value).__name__}')
    if delay < timedelta(0):
        raise ValueError("a delay must not be negative")
    if delay > LONGEST_DELAY:
        raise ValueError(_TOO_LONG)
    return delay


def _of_seconds(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except ValueError:
        raise ValueError(f"{seconds!r} is not a number of seconds") from None
    except OverflowError:
        raise ValueError(_TOO_LONG) from None


_TOO_LONG = f"no message is delayed for longer than {LONGEST_DELAY.days} days"


def format_duration(duration: timedelta) -> str:
    """Return `duration` as `parse_duration` reads it, in its largest fitting unit, to three digits."""
    seconds = duration.total_seconds()
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)}{unit}"
    return f"{_three_digits(seconds * 1000)}ms"


def _three_digits(number: float) -> str:
    # From 1,000 on the short form has an exponent, hard to read as a duration.
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"
