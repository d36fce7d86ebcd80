"""Fixed delays: one queue each, because a longer delay at a queue's head blocks every shorter one."""

from collections.abc import Callable, Iterator
from datetime import timedelta

from oncemq.common.durations import format_duration
from oncemq.errors import BrokerRefused

STEPS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
"""Tenths; neighbours are 20 to 33 % apart, so that few queues are needed and jitter survives."""

SHORTEST_MS = 100
LONGEST = timedelta(days=28)

SILENT_SECONDS = 600.0
"""For which a queue that did not confirm is not used; then it is tried again."""


def all_steps() -> Iterator[int]:
    """Yield every delay that there may be a queue of, in milliseconds."""
    decade, longest = SHORTEST_MS, LONGEST // timedelta(milliseconds=1)
    while decade <= longest:
        yield from (decade * step // 10 for step in STEPS)
        decade *= 10


class SilentQueues:
    """Delay queues that do not confirm, which the next longer delay replaces for a while; may be used by any thread.

    A quorum queue of RabbitMQ 3.10 that was declared in the three seconds before the broker was killed comes back without
    a leader, and never confirms a message.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[str, float] = {}

    def note(self, queue: str) -> None:
        """Record that a message for this queue was not confirmed in time."""
        self._until[queue] = self._monotonic() + SILENT_SECONDS

    def step(self, wanted: int, queue: Callable[[int], str]) -> int:
        """Return the shortest delay, not shorter than the wanted one, whose queue is not known to be silent.

        Args:
            wanted: milliseconds, a step of the grid.
            queue: returns the queue's name of a step.
        """
        if not self._until:
            return wanted
        now, step = self._monotonic(), wanted
        for _ in STEPS:
            if self._until.get(queue(step), 0.0) <= now or step >= LONGEST // timedelta(milliseconds=1):
                return step
            step = step_of(timedelta(milliseconds=step + 1))
        return wanted


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
