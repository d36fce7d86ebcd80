"""Says whether the calling thread or task has a transaction of the framework open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Ongoing = Callable[[], bool]
"""Returns whether a transaction is open still; copies of a context outlive it."""

# A context variable must be a module global.
_ongoing: ContextVar[Ongoing | None] = ContextVar("oncemq_open_unit", default=None)

now_in: Final[Callable[[Ongoing | None], object]] = _ongoing.set
"""Notes that this thread or task is inside of a transaction; None ends that. It is called for every unit."""


@contextmanager
def inside(ongoing: Ongoing) -> Iterator[None]:
    """Note that the block is inside of a transaction, while `ongoing` says so."""
    token = _ongoing.set(ongoing)
    try:
        yield
    finally:
        _ongoing.reset(token)


def is_inside() -> bool:
    """Return whether a transaction of the framework is open here."""
    ongoing = _ongoing.get()
    return ongoing is not None and ongoing()
