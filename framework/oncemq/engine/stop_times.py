"""Divides `grace` among the steps of a stop, so that the whole stop fits into it.

An orchestrator kills a container when its own time is over, which by default is as long as `grace`: 30 seconds. What
is still to be told to brokers and databases by then would be lost.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

_CLOSING = timedelta(seconds=3)
_KILLING = timedelta(seconds=1)
_CLOSING_SHARE = 5
_KILLING_SHARE = 15
_LEAST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class StopTimes:
    """Times of a stop, counted from its request.

    Args:
        handlers: running handlers may finish until then.
        closed: brokers and databases are told the rest until then; a process that still runs is killed.
    """

    handlers: timedelta
    closed: timedelta

    @classmethod
    def of(cls, grace: timedelta) -> Self:
        """Return the times for a stop of `grace` in all; a process has a second even where `grace` is shorter.

        The last 3 seconds, of a short `grace` its last fifth, are for closing; the last second is for what was killed to end.
        """
        return cls(
            handlers=grace - min(_CLOSING, grace / _CLOSING_SHARE),
            closed=max(grace - min(_KILLING, grace / _KILLING_SHARE), _LEAST),
        )
