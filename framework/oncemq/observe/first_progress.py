"""Reports the progress of a process to its supervisor: its first applied message, and how many it has worked on."""

from collections.abc import Callable, Mapping
from typing import Any

from oncemq.contracts.verdict import Outcome
from oncemq.observe.events import Observer

_PROGRESS = (Outcome.PROCEED, Outcome.PARKED, Outcome.REJECT, Outcome.CONFLICT)
"""Outcomes that advance the queue; duplicates and stale messages may be redelivered after every crash."""


class FirstProgress(Observer):
    """Observes the first unit that advanced the queue.

    Args:
        applied: called once.
    """

    def __init__(self, applied: Callable[[], None]) -> None:
        self._applied: Callable[[], None] | None = applied

    def unit_done(self, consumer: str, counts: Mapping[Outcome, int], **_: Any) -> None:  # noqa: ARG002
        """Look for an outcome that advances the queue."""
        if self._applied is not None and any(counts.get(outcome) for outcome in _PROGRESS):
            applied, self._applied = self._applied, None
            applied()


class MessageCount(Observer):
    """Counts the messages that this process has worked on, duplicates and failures included.

    Args:
        counted: called with the number of each unit's messages, from the threads of the workers.
    """

    def __init__(self, counted: Callable[[int], None]) -> None:
        self._counted = counted

    def unit_done(self, consumer: str, counts: Mapping[Outcome, int], *, size: int, **_: Any) -> None:  # noqa: ARG002
        """Count them."""
        self._counted(size)
