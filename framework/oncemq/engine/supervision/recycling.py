"""Decides when a worker process is recycled: after so many messages, above so much memory, every so often."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError

_EARLIER = 0.2
"""Share of a limit by which a process may be earlier, so that processes that started together are not due together."""
_MEMORY_NOT_BEFORE = 10.0
"""Seconds; a limit that every process exceeds soon after its start must not make an endless row of starts."""


class Reason(StrEnum):
    """Why a worker process is replaced."""

    MESSAGES = "messages"
    MEMORY = "memory"
    AGE = "age"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class RecycleRule:
    """When a worker process is replaced by a new one; the first limit that is reached decides.

    Args:
        after_messages: so many messages; None = never for this.
        above_memory: so many bytes; None = never for this.
        every: so old; None = never for this.
    """

    after_messages: int | None = None
    above_memory: int | None = None
    every: timedelta | None = None


def refuse_recycling(recycle: RecycleRule | None) -> None:
    """Refuse to run a process that nothing would replace.

    Raises:
        ConfigError: it is to be recycled.
    """
    if recycle is not None:
        raise ConfigError(
            [
                Problem(
                    "recycle: nothing would replace this process: App.run() and App.start() have no supervisor",
                    "start the app by `oncemq -f module:app run`, or leave recycle out",
                )
            ]
        )


class Limits:
    """Limits of one worker process: those of messages and age are drawn, up to a fifth below the rule's.

    Args:
        rule: of the app.
        draw: where the jitter comes from.
    """

    def __init__(self, rule: RecycleRule, draw: Random) -> None:
        share = 1 - _EARLIER * draw.random()
        self._messages = None if rule.after_messages is None else max(1.0, rule.after_messages * share)
        self._seconds = None if rule.every is None else rule.every.total_seconds() * share
        self._bytes = rule.above_memory

    def begin(self, memory: int) -> bool:
        """Note the memory of a process that is ready; returns whether its limit of memory can be kept.

        A process that needs more from its start would be replaced for ever.
        """
        if self._bytes is None or memory < self._bytes:
            return True
        self._bytes = None
        return False

    def reached(self, age: float, messages: int, memory: int) -> Reason | None:
        """Return which limit is reached, if one is.

        Args:
            age: seconds since it was ready.
            messages: that it has worked on.
            memory: its bytes.
        """
        if self._messages is not None and messages >= self._messages:
            return Reason.MESSAGES
        if self._bytes is not None and memory >= self._bytes and age >= _MEMORY_NOT_BEFORE:
            return Reason.MEMORY
        if self._seconds is not None and age >= self._seconds:
            return Reason.AGE
        return None
