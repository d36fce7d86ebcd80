"""Runs an engine's code on an event loop, as the workers of async handlers do."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.util import greenlet_spawn

from oncemq.ledger.database.async_engine import make_async_twin

Answer = TypeVar("Answer")


class Loop:
    """An event loop with the async twin of an engine.

    Attributes:
        engine: the twin.
    """

    def __init__(self, engine: Engine) -> None:
        self._runner = asyncio.Runner()
        self.engine = make_async_twin(engine, 4)

    def run(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return `work(*arguments)`, called inside the loop as a worker's code is."""
        answer: Answer = self._runner.run(greenlet_spawn(partial(work, *arguments)))
        return answer

    def close(self) -> None:
        """Close the twin's connections, and the loop."""
        self.run(self.engine.dispose)
        self._runner.close()
