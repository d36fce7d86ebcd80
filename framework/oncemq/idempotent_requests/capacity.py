"""Limits the concurrent database work of requests from an event loop.

A thread that waits for a connection or a lock could be the thread that its holder needs to commit. So arriving
requests and running requests have separate threads, both together never need more connections than there are, and
waiting takes place on the loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Engine, QueuePool

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError
from oncemq.idempotent_requests.handler_session import off_loop

Result = TypeVar("Result")

_WITHOUT_LIMIT = 40
_LEAST = 3


class Capacity:
    """Shares an engine's connections between threads and transactions.

    Raises:
        ConfigError: there are too few connections to share.
    """

    def __init__(self, engine: Engine) -> None:
        pool = engine.pool
        limited = isinstance(pool, QueuePool) and pool.size() > 0 and pool._max_overflow >= 0
        most = pool.size() + pool._max_overflow if isinstance(pool, QueuePool) and limited else _WITHOUT_LIMIT
        if most < _LEAST:
            problem = Problem(
                f"the engine has {most} connections", f"give it {_LEAST}: pool_size and max_overflow"
            )
            raise ConfigError([problem])
        self.arriving = max(1, most // 3)
        # One connection is for the background work. SQLite has one writer at a time, whatever the connections.
        self.running = 1 if engine.dialect.name == "sqlite" else max(1, most - self.arriving - 1)
        self._executors: dict[bool, ThreadPoolExecutor] = {}
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    async def arrive(self, function: Callable[[], Result], undo: Callable[[Result], None]) -> Result:
        """Run `function` in a thread for arriving requests; see `off_loop`."""
        return await off_loop(function, self._executor(arriving=True), undo)

    async def work(self, function: Callable[[], Result]) -> Result:
        """Run `function` in a thread for running requests."""
        return await off_loop(function, self._executor(arriving=False))

    def _executor(self, *, arriving: bool) -> ThreadPoolExecutor:
        if arriving not in self._executors:
            # Created late: threads do not survive the fork of a server that imports the app first.
            threads = self.arriving if arriving else self.running
            self._executors[arriving] = ThreadPoolExecutor(threads, "oncemq-requests")
        return self._executors[arriving]

    def turn(self) -> asyncio.Semaphore:
        """Return the semaphore that is held while a transaction is open."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = (loop, asyncio.Semaphore(self.running))
        return self._turns[1]
