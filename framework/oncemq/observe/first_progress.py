"""Reports once that a process has applied a message: its restart then needs no delay."""

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
