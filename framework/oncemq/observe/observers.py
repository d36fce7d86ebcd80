"""Passes events to several observers, none of which can disturb the engine or the others."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from oncemq.observe.events import Observer

_EVENTS: Final = tuple(name for name in vars(Observer) if not name.startswith("_"))

Hook = Callable[..., None]


class Observers(Observer):
    """Passes every event on; an observer that raises is logged once and still called.

    Args:
        observers: called in this order, those that override an event's method.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._failed: set[type[Observer]] = set()
        for event in _EVENTS:
            hooks = [(type(observer), getattr(observer, event)) for observer in observers]
            setattr(
                self, event, partial(self._tell, [hook for hook in hooks if not _is_empty(event, hook[1])])
            )

    def _tell(self, hooks: Sequence[tuple[type[Observer], Hook]], *values: Any, **named: Any) -> None:
        for kind, hook in hooks:
            try:
                hook(*values, **named)
            except Exception as error:
                self._note(kind, error)

    def _note(self, kind: type[Observer], error: Exception) -> None:
        if kind in self._failed:
            return
        self._failed.add(kind)
        logging.getLogger(__name__).error(
            "observer %s failed; messages are not affected, further failures of it are not logged",
            kind.__name__,
            exc_info=error,
        )


def _is_empty(event: str, hook: Hook) -> bool:
    return getattr(hook, "__func__", None) is getattr(Observer, event)
