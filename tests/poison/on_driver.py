"""Test of a driver that has an environment of its own: it must carry each error's text through a retry and into a dead letter."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.processed import TABLE
from oncemq.observe import logs
from oncemq.testing.adapter_suite.bench import Bench
from poison.crowd import Crowd
from support.effects import Base, empty

WAYS = [
    "lone surrogate",
    "NUL and control characters",
    "a huge text",
    "Retry after four days",
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A database of the test's own."""
    made = make_engine(f"sqlite:///{tmp_path}/test.db")
    schema.create(made, [TABLE])
    Base.metadata.create_all(made)
    empty(made)
    yield made
    made.dispose()
    logs.configure("warning", "console")


def test_poisoned_messages_end_as_dead_letters_and_harm_no_neighbour(bench: Bench, engine: Engine) -> None:
    """Odd texts, and a delay that RocketMQ does not hold, block neither the neighbours nor each other."""
    options = bench.topic().options
    crowd = Crowd(bench.harness.make_adapter, engine, WAYS, 0, 500, 12, options)
    crowd.judge()
    crowd.sender.close(grace=timedelta(0))
