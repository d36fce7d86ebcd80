"""Calls async handlers from a unit's transaction, which runs in a greenlet of an event loop.

The transaction's code is the same as for sync handlers: a statement, and a handler's coroutine, are awaited where it is called.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from inspect import isawaitable
from typing import Any, TypeVar

from sqlalchemy.util import await_only

from oncemq.contracts.unit import Item, Run
from oncemq.engine.crash.time_limits import TimeLimitSlot
from oncemq.errors import TimeLimitExceeded
from oncemq.handler.binding import BoundHandler
from oncemq.observe.events import TimeLimit

Answer = TypeVar("Answer")
Told = Callable[[TimeLimit, timedelta], object]
"""Called with the kind of limit that a handler exceeded, and the limit."""


def _untold(_which: TimeLimit, _limit: timedelta) -> None:
    """Ignore it."""


def in_thread(work: Callable[..., Answer], *arguments: object) -> Answer:
    """Return `work(*arguments)`, called in another thread: the event loop serves other units meanwhile.

    Args:
        work: it blocks, and uses no connection of the loop's.
        arguments: passed to it.
    """
    answer: Answer = await_only(asyncio.to_thread(work, *arguments))
    return answer


def awaiting(
    handler: BoundHandler, slot: TimeLimitSlot, limit: timedelta | None, told: Told = _untold
) -> BoundHandler:
    """Return the handler as one that is called like a function, inside `greenlet_spawn`.

    Args:
        handler: an async one.
        slot: of the worker; marked when a call exceeds the soft limit.
        limit: the soft limit, at which the call is cancelled; None = never.
        told: called then.
    """
    soft = None if limit is None else limit.total_seconds()

    def expired() -> None:
        slot.overdue = slot.started
        if limit is not None:
            told(TimeLimit.SOFT, limit)

    def call(run: Run, item: Item) -> Any:
        return _wait_for(handler.call(run, item), soft, expired)

    batch = handler.call_batch

    def call_batch(run: Run, items: list[Item]) -> Any:
        return None if batch is None else _wait_for(batch(run, items), soft, expired)

    return replace(handler, call=call, call_batch=None if batch is None else call_batch)


def _wait_for(answer: Any, soft: float | None, expired: Callable[[], None]) -> Any:
    return await_only(_limited(answer, soft, expired)) if isawaitable(answer) else answer


async def _limited(answer: Awaitable[Any], soft: float | None, expired: Callable[[], None]) -> Any:
    """Await a handler; a cancellation that it asked for ends with it."""
    try:
        if soft is None:
            return await answer
        limit = asyncio.timeout(soft)
        try:
            async with limit:
                return await answer
        except TimeoutError as error:
            if not limit.expired():
                raise
            expired()
            text = "the handler took longer than its soft time limit, and was cancelled"
            raise TimeLimitExceeded(text) from error
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await _absorb(task)


async def _absorb(task: "asyncio.Task[Any]") -> None:
    """Take a cancellation that the handler requested for its own task, which is the worker's."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.uncancel():
        pass
