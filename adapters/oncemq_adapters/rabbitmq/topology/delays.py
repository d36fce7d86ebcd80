"""Fixed delays: one queue each, because a longer delay at a queue's head blocks every shorter one."""

from collections.abc import Iterator
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.errors import BrokerRefused

STEPS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
"""Tenths; neighbours are 20 to 33 % apart, so that few queues are needed and jitter survives."""

SHORTEST_MS = 100
LONGEST = timedelta(days=28)


def all_steps() -> Iterator[int]:
    """Yield every delay that there may be a queue of, in milliseconds."""
    decade, longest = SHORTEST_MS, LONGEST // timedelta(milliseconds=1)
    while decade <= longest:
        yield from (decade * step // 10 for step in STEPS)
        decade *= 10


def step_of(delay: timedelta) -> int:
    """Return the shortest delay of the grid that is not shorter than `delay`, in milliseconds; 0 for no delay.

    Raises:
        BrokerRefused: `delay` is longer than RabbitMQ's timers reach.
    """
    if delay <= timedelta(0):
        return 0
    if delay > LONGEST:
        raise BrokerRefused(
            f"a delay of {format_duration(delay)} is longer than the {format_duration(LONGEST)} that a RabbitMQ "
            "queue can hold a message back; shorten the backoff's max or Retry(after=…)"
        )
    wanted = -(-delay // timedelta(milliseconds=1))
    decade = SHORTEST_MS
    while decade * 10 <= wanted:
        decade *= 10
    return next((size for step in STEPS if (size := decade * step // 10) >= wanted), decade * 10)
