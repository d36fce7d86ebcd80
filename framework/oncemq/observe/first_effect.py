"""Tells once that a process has applied a message: whoever restarts it need not wait then."""

from collections.abc import Callable, Mapping
from typing import Any

from oncemq.contracts.verdict import Outcome
from oncemq.observe.events import Observer

_PROGRESS = (Outcome.PROCEED, Outcome.PARKED, Outcome.REJECT, Outcome.CONFLICT)
"""What brings the queue on; copies and what came late may come again after every death."""


class FirstEffect(Observer):
    """Notices the first unit that brought the queue on.

    Args:
        applied: called once.
    """

    def __init__(self, applied: Callable[[], None]) -> None:
        self._applied: Callable[[], None] | None = applied

    def unit_done(self, consumer: str, counts: Mapping[Outcome, int], **_: Any) -> None:  # noqa: ARG002
        """Look for something that was applied."""
        if self._applied is not None and any(counts.get(outcome) for outcome in _PROGRESS):
            applied, self._applied = self._applied, None
            applied()
