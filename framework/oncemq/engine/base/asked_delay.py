"""Messages whose producer asks for a delay: they wait at their broker, no longer than the consumer allows."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from oncemq.common.clock import Clock
from oncemq.common.durations import parse_duration
from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict, reject, wait
from oncemq.engine.base.expiry import moment_of
from oncemq.engine.base.overtaken import was_tried
from oncemq.message.expressions import Expression
from oncemq.message.headers import WAITING_SINCE, time_of

BAD_DELAY: Final = "delay"
"""The reason of the dead letters of messages whose delay cannot be read."""
LONGEST_HOP: Final = timedelta(minutes=10)
"""For which a broker holds a message at a time; a longer wait has several. Brokers with less say so at start."""


class AskedDelay(Strategy):
    """Lets a message wait until the time that its producer asks for; what was tried once does not wait again.

    Args:
        find: what the producer asks for: a duration since the message was published, or a moment.
        limit: the longest wait.
        clock: the source of time.
    """

    traits: ClassVar[Traits] = Traits(decides=False, kinds=frozenset(UnitKind))
    name = "delay"
    by_identity = True

    def __init__(self, find: Expression, limit: timedelta, clock: Clock) -> None:
        self._find = find
        self._limit = limit
        self._now: Callable[[], datetime] = clock.now

    def decide(self, run: Run, item: Item) -> Verdict:  # noqa: ARG002
        """Return PROCEED when the time has come."""
        message = item.delivery.message
        value = self._find(message, item.payload)
        if value is None or was_tried(item.delivery):
            return PROCEED
        now = self._now()
        seen = time_of(message.headers, WAITING_SINCE) or now
        # A time in the future is a wrong clock's or a stranger's: with it the wait would never end.
        since = min(item.envelope.published_at or seen, seen)
        try:
            due = _due(value, since)
        except ValueError as error:
            return reject(f"the delay of key {item.key!r} cannot be read: {error}", code=BAD_DELAY)
        left = min(due, since + self._limit) - now
        if left <= timedelta(0):
            return PROCEED
        return wait(min(left, LONGEST_HOP), f"its producer asks for a delay until {due.isoformat()}")


def _due(value: Any, since: datetime) -> datetime:
    """Return a moment: `30s` after `since`, or ISO 8601 with a time zone.

    Raises:
        ValueError: it is neither.
    """
    wrong = f"{repr(value)[:60]} is neither a duration such as 30s nor ISO 8601 with a time zone"
    if not isinstance(value, str) or value.strip().replace(".", "", 1).isdigit():
        raise ValueError(wrong)
    try:
        return since + parse_duration(value)
    except OverflowError:
        return datetime.max.replace(tzinfo=since.tzinfo)
    except ValueError:
        pass
    try:
        return moment_of(value)
    except ValueError:
        raise ValueError(wrong) from None
