"""Delays of RocketMQ: to the millisecond with a timer wheel, else in eighteen levels."""

from datetime import timedelta

from oncemq_adapters.rocketmq_client.errors import RocketMQRefused

TIMER = "TIMER_DELAY_MS"
LEVEL = "DELAY"
LONGEST_DELAY = timedelta(days=3)
"""The longest delay of a timer wheel by default."""

DELAY_LEVELS = (1, 5, 10, 30, *(60 * minutes for minutes in range(1, 11)), 1200, 1800, 3600, 7200)
"""Seconds of each delay level, from level 1, unless the broker is configured otherwise."""


def delay_properties(delay: timedelta, *, timer: bool) -> dict[str, str]:
    """Return the properties that make a broker hold a message back.

    Args:
        delay: not before this long from now; levels are rounded up.
        timer: the broker has a timer wheel.

    Raises:
        RocketMQRefused: the delay is too long for the broker.
    """
    milliseconds = round(delay.total_seconds() * 1000)
    if milliseconds <= 0:
        return {}
    if timer:
        if delay > LONGEST_DELAY:
            raise RocketMQRefused(f"RocketMQ holds a message back for three days at most, not for {delay}")
        return {TIMER: str(milliseconds)}
    for level, seconds in enumerate(DELAY_LEVELS, 1):
        if seconds * 1000 >= milliseconds:
            return {LEVEL: str(level)}
    raise RocketMQRefused(
        f"this RocketMQ has no timer wheel and holds a message back for two hours at most, not for {delay}"
    )
