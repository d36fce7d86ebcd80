"""Gives a handler its session, in whichever thread or task of its framework it runs."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy.orm import Session

from oncemq.engine.base.open_units import inside
from oncemq.errors import HandlerFault

Result = TypeVar("Result")


class Lender(Protocol):
    """Holder of a session for a handler."""

    session: Session | None


_LENT: ContextVar[Lender | None] = ContextVar("oncemq_lender", default=None)


def on_event_loop() -> bool:
    """Return whether this is the thread of a running event loop, which database work would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_on_event_loop() -> None:
    """Refuse database work where it would block the event loop, perhaps including the work it waits for.

    Raises:
        HandlerFault: this is the event loop's thread.
    """
    if on_event_loop():
        raise HandlerFault(
            "database work would stop the event loop: write `await oncemq.idempotent_requests.in_session(function)`, "
            "or make the handler a plain function, which frameworks run in a thread"
        )


def session() -> Session:
    """Return the session of the current request: its writes commit with the answer.

    Works in threads that the framework starts for the request, so it can be a FastAPI dependency:
    `Depends(oncemq.idempotent_requests.session)`.

    Raises:
        HandlerFault: no protected request is running here, or this is the event loop's thread.
    """
    refuse_on_event_loop()
    return _lent()


async def in_session(function: Callable[[Session], Result]) -> Result:
    """Return the result of `function` called with the request's session, in a separate thread.

    Raises:
        HandlerFault: no protected request is running here.
    """
    lent = _lent()
    return await off_loop(lambda: function(lent))


@contextmanager
def lending(lender: Lender) -> Iterator[None]:
    """Make the session of `lender` available to `session()`, here and in tasks and threads started here."""
    token = _LENT.set(lender)
    try:
        with inside(lambda: lender.session is not None):
            yield
    finally:
        _LENT.reset(token)


async def off_loop(
    function: Callable[[], Result],
    executor: Executor | None = None,
    undo: Callable[[Result], None] | None = None,
) -> Result:
    """Run `function` in a thread, and wait until it has ended, also when cancelled: it may hold the session.

    Args:
        function: runs in the caller's context.
        executor: for the thread; the loop's own unless given.
        undo: handles a result that a cancelled caller does not get.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    work = loop.run_in_executor(executor, lambda: context.run(function))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            await _one_wait(work)
        if not work.cancelled() and work.exception() is None and undo is not None:
            with suppress(asyncio.CancelledError):
                await off_loop(partial(undo, work.result()), executor)
        raise


async def _one_wait(work: "asyncio.Future[Result]") -> None:
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        return


def _lent() -> Session:
    lender = _LENT.get()
    lent = lender.session if lender is not None else None
    if lent is None:
        raise HandlerFault(
            "no session is lent here: the request is not protected, its answer is complete, or its effects are external"
        )
    return lent
