"""Acquires locks from coroutines: calls to Redis in threads of their own, waiting on the event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from oncemq.redis import RedisClient
from oncemq_strategies.redisson.waiters import Waiter, Waiters

T = TypeVar("T")
_THREADS = 8


class ShortCalls:
    """Threads for calls that Redis answers at once; nothing waits for a lock in them.

    Args:
        client: that the calls use.
    """

    def __init__(self, client: RedisClient) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "oncemq-lock-call")
        client.before_closing(lambda: self._threads.shutdown(wait=False, cancel_futures=True))

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Start a call."""
        return self._threads.submit(call)

    async def result(self, call: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Return the result of a call; `undo` gets it if the caller was cancelled meanwhile."""
        future = self.submit(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                self.submit(lambda: undo(future.result()))
            raise


class LoopEvent(threading.Event):
    """An event that is set from any thread and waited for by a coroutine of the loop that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._seen = asyncio.Event()

    def set(self) -> None:
        """Wake the coroutine."""
        super().set()
        with suppress(RuntimeError):  # the loop has ended, and the coroutine with it
            self._loop.call_soon_threadsafe(self._seen.set)

    async def heard(self, seconds: float) -> None:
        """Return when the event is set, or after `seconds`; clear it."""
        # Not wait_for: before Python 3.12 it forgets that it was cancelled when the event is set at the same moment.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._seen.wait()
        self._seen.clear()
        self.clear()


async def acquired(
    client: RedisClient,
    channel: str,
    attempt: Callable[[], int | None],
    undo: Callable[[bool], object],
    wait: timedelta | None,
    pause: Callable[[int], float],
    *,
    all_wake: bool,
) -> bool:
    """Return whether an attempt succeeded in time.

    Args:
        client: makes the attempts.
        channel: in which another attempt is announced.
        attempt: returns None when it succeeded, else the milliseconds until a lease ends that it waits for.
        undo: takes back an attempt whose caller was cancelled; its argument says whether it had succeeded.
        wait: how long to try; None = until it succeeds, zero = once.
        pause: returns the seconds after which to try again without a message, from those milliseconds.
        all_wake: a message wakes all waiters of this process.
    """
    calls, waiters = client.shared(ShortCalls), client.shared(Waiters)

    def take_back(held_for: int | None) -> None:
        undo(held_for is None)

    until = threading.TIMEOUT_MAX if wait is None else time.monotonic() + wait.total_seconds()
    if await calls.result(attempt, take_back) is None:
        return True
    if until <= time.monotonic():
        return False
    woken = LoopEvent()
    joining = calls.submit(lambda: waiters.join(channel, all_wake=all_wake, woken=woken))

    def leave(joined: "Future[Waiter]") -> None:
        if not joined.cancelled() and joined.exception() is None:
            with suppress(RuntimeError):  # the client is closed
                calls.submit(lambda: waiters.leave(channel, joined.result()))

    try:
        await asyncio.wrap_future(joining)
        while True:
            held_for = await calls.result(attempt, take_back)
            if held_for is None:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            await woken.heard(min(left, pause(held_for)))
    finally:
        joining.add_done_callback(leave)
