"""Processes of an app that reload one after the other: whose turn it is, and who is passed over."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from oncemq.cli.reload import turns
from oncemq.cli.reload.turns import LEASE, Turns
from oncemq.ledger import schema
from oncemq.ledger.coordination import leases
from oncemq.ledger.database.engine import make_engine
from oncemq.ledger.database.server_clock import server_time
from support.apps.program import eventually


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look all the time."""
    monkeypatch.setattr(turns, "LOOK_EVERY", 0.02)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A ledger."""
    made = make_engine(f"sqlite:///{tmp_path}/shop.db")
    schema.create(made)
    yield made
    made.dispose()


class Waiting:
    """A process that waits for its turn in a thread.

    Args:
        turn: of the process.
    """

    def __init__(self, turn: Turns) -> None:
        self.answer: bool | None = None
        self.overtaken = False
        self._turn = turn
        self._looks = 0
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def looked(self) -> None:
        """Wait until it has looked twice more."""
        before = self._looks
        eventually(lambda: self._looks > before + 1 or self.answer is not None, "it looks")

    def ended(self) -> bool:
        """Wait for its answer."""
        self._thread.join(10)
        assert self.answer is not None
        return self.answer

    def _take(self) -> None:
        self.answer = self._turn.take(self._look)

    def _look(self) -> bool:
        self._looks += 1
        return self.overtaken


def _moved(engine: Engine, by: timedelta) -> None:
    """Let the lease end so much earlier."""
    with engine.begin() as connection:
        until = server_time(connection) + LEASE - by
        connection.execute(update(leases.TABLE).values(until=until))


def test_a_process_waits_until_the_one_before_it_has_ended_its_turn(engine: Engine) -> None:
    """Processes of another app have turns of their own."""
    first, second = Turns(engine, "shop", "web-1"), Turns(engine, "shop", "web-2")
    assert first.take(lambda: False)
    assert Turns(engine, "other", "web-2").take(lambda: False)
    waiting = Waiting(second)
    waiting.looked()
    assert waiting.answer is None
    first.end()
    assert waiting.ended()


def test_a_process_that_has_died_in_its_turn_is_passed_over(engine: Engine) -> None:
    """Its lease is not extended any more."""
    assert Turns(engine, "shop", "web-1").take(lambda: False)
    waiting = Waiting(Turns(engine, "shop", "web-2"))
    waiting.looked()
    assert waiting.answer is None
    _moved(engine, LEASE + timedelta(seconds=1))
    assert waiting.ended()


def test_a_turn_that_takes_longer_than_its_lease_is_kept(engine: Engine) -> None:
    """A process that replaces many workers extends it."""
    first = Turns(engine, "shop", "web-1")
    assert first.take(lambda: False)
    waiting = Waiting(Turns(engine, "shop", "web-2"))
    for _ in range(2):
        _moved(engine, LEASE - timedelta(seconds=5))
        first.keep()
        with engine.connect() as connection:
            left = connection.execute(leases.TABLE.select()).one().until - server_time(connection)
        assert LEASE / 2 < left <= LEASE
    waiting.looked()
    assert waiting.answer is None
    first.end()
    assert waiting.ended()


def test_a_process_that_waits_gives_way_to_a_later_request(engine: Engine) -> None:
    """So that it reads its files again, and does not wait for a text that is replaced at once."""
    assert Turns(engine, "shop", "web-1").take(lambda: False)
    waiting = Waiting(Turns(engine, "shop", "web-2"))
    waiting.overtaken = True
    assert not waiting.ended()


def test_a_process_that_ends_in_its_turn_leaves_it_to_the_next_one(engine: Engine) -> None:
    """It takes none afterwards; one that ends while it waits has none."""
    first, second = Turns(engine, "shop", "web-1"), Turns(engine, "shop", "web-2")
    assert first.take(lambda: False)
    waiting = Waiting(second)
    waiting.looked()
    second.close()
    assert not waiting.ended()
    first.close()
    first.keep()
    assert Turns(engine, "shop", "web-3").take(lambda: False)


def test_a_database_that_is_away_lets_a_process_wait(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new workers could not be ready either; it has its turn when the database is back."""
    acquire, failing = leases.acquire, True

    def away(*arguments: object, **named: object) -> bool:
        if failing:
            raise turns.SQLAlchemyError("away")
        return acquire(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(leases, "acquire", away)
    waiting = Waiting(Turns(engine, "shop", "web-1"))
    waiting.looked()
    assert waiting.answer is None
    failing = False
    assert waiting.ended()
