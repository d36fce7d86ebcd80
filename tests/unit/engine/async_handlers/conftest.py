"""Gives the tests of this folder one database of each kind, and an event loop on it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from oncemq.testing.event_loop import Loop
from support.database.databases import database, engine

__all__ = ["database", "engine"]


@pytest.fixture
def loop(engine: Engine) -> Iterator[Loop]:
    """An event loop with an async engine on the test's database."""
    loop = Loop(engine)
    yield loop
    loop.close()
