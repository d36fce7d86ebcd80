"""Messages that are too old to run: the last step of a consumer's chain of strategies."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from oncemq.common.clock import Clock
from oncemq.common.durations import format_duration
from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Verdict, expired, reject
from oncemq.engine.base.overtaken import first_error, was_tried
from oncemq.message.expressions import Expression

EXPIRED: Final = "expired"
"""The reason of the dead letters of expired messages."""
BAD_DEADLINE: Final = "deadline"
"""The reason of the dead letters of messages whose deadline cannot be read."""

_NUMBER: Final = re.compile(r"\d{1,16}(\.\d{1,9})?")
_MILLISECONDS_FROM: Final = 100_000_000_000
"""Seconds since 1970 reach this number in the year 5138, milliseconds reached it in 1973."""


class Expiry(Strategy):
    """Lets no message run whose time is over; asked last, so that a copy of an applied message stays a duplicate.

    A message that was tried and failed becomes a dead letter, as it would vanish silently otherwise.

    Args:
        after: how long a message may wait since it was published; None = as long as it likes.
        deadline: the message's own deadline; None = it has none.
        bury: an expired message becomes a dead letter, also if it was never tried.
        clock: the source of time.
    """

    traits: ClassVar[Traits] = Traits(decides=False, kinds=frozenset(UnitKind))
    name = "expires"
    by_identity = True

    def __init__(
        self, after: timedelta | None, deadline: Expression | None, *, bury: bool, clock: Clock
    ) -> None:
        self._after = after
        self._deadline = deadline
        self._bury = bury
        self._now: Callable[[], datetime] = clock.now

    def decide(self, run: Run, item: Item) -> Verdict:  # noqa: ARG002
        """Return PROCEED while the message's time is not over."""
        now = self._now()
        published = item.envelope.published_at
        if self._after is not None and published is not None and now - published > self._after:
            age = format_duration(timedelta(seconds=round((now - published).total_seconds())))
            return self._over(item, f"it was published {age} ago, more than {format_duration(self._after)}")
        if self._deadline is None:
            return PROCEED
        value = self._deadline(item.delivery.message, item.payload)
        if value is None:
            return PROCEED
        try:
            until = moment_of(value)
        except ValueError as error:
            return reject(f"the deadline of key {item.key!r} cannot be read: {error}", code=BAD_DEADLINE)
        return self._over(item, f"its deadline was {until.isoformat()}") if until < now else PROCEED

    def _over(self, item: Item, why: str) -> Verdict:
        if was_tried(item.delivery):
            return reject(f"{why}; it had failed before: {first_error(item.delivery)}", code=EXPIRED)
        return reject(why, code=EXPIRED) if self._bury else expired(why)


def moment_of(value: Any) -> datetime:
    """Return a point in time, aware, from ISO 8601 text with a time zone, or seconds or milliseconds since 1970.

    Raises:
        ValueError: it is none of these, or lies beyond the year 9999.
    """
    wrong = f"{repr(value)[:60]} is neither ISO 8601 with a time zone nor seconds or milliseconds since 1970"
    try:
        found = value if isinstance(value, datetime) else _parsed(value)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ValueError(wrong) from None
    if found.tzinfo is None:
        raise ValueError(f"{repr(value)[:60]} has no time zone: write …Z or …+00:00")
    return found


def _parsed(value: Any) -> datetime:
    if isinstance(value, bool):
        raise TypeError(value)
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return datetime.fromisoformat(value.strip())
    number = float(value)
    if number < 0:
        raise ValueError(value)
    seconds = number / 1000 if number >= _MILLISECONDS_FROM else number
    return datetime.fromtimestamp(seconds, UTC)
