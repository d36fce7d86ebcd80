"""Exclusive units of one consumer wait for each other, wherever they run."""

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from oncemq.ledger import schema
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.records.exclusive_units import enter_exclusive

SOON, DEADLINE = 0.3, 20.0


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with a ledger."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


def enter(engine: Engine, consumer: str, entered: threading.Event) -> threading.Thread:
    """Enter the consumer's lane in a thread of its own, for a moment."""

    def run() -> None:
        with engine.begin() as connection:
            enter_exclusive(connection, consumer)
            entered.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_an_exclusive_unit_waits_for_the_other(engine: Engine) -> None:
    """The second one enters when the first one's transaction has ended, and not before."""
    entered = threading.Event()
    with engine.begin() as connection:
        enter_exclusive(connection, "shop.points")
        rival = enter(engine, "shop.points", entered)
        assert not entered.wait(SOON)
    assert entered.wait(DEADLINE)
    rival.join(DEADLINE)


# On SQLite one writes at a time, whichever consumer it is.
@pytest.mark.parametrize(
    "database_url",
    [pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")],
    indirect=True,
)
def test_consumers_have_lanes_of_their_own(engine: Engine) -> None:
    """The deadlocks of one consumer do not slow down another."""
    entered = threading.Event()
    with engine.begin() as connection:
        enter_exclusive(connection, "shop.points")
        other = enter(engine, "shop.mails", entered)
        assert entered.wait(DEADLINE)
    other.join(DEADLINE)
