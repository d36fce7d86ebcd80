"""From a handler's signature to a call: each argument is filled by its annotation, decided once at start."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncemq.unit import Item, Run


@dataclass(frozen=True, slots=True)
class BoundHandler:
    """A user's function with its arguments resolved.

    Args:
        name: `module:function`, for logs and errors.
        call: runs it for one item; a coroutine for an async handler.
            Raises InvalidPayload when the body is not what the annotation says.
        is_async: it is a coroutine function.
        wants_session: it asks for the Session, so its effects are in the database.
        is_batch: it takes a `Batch[...]`; then `call_batch` is used instead of `call`.
        call_batch: runs it once for several items, in order.
    """

    name: str
    call: Callable[[Run, Item], Any]
    is_async: bool = False
    wants_session: bool = False
    is_batch: bool = False
    call_batch: Callable[[Run, list[Item]], Any] | None = None
