"""An idle process learns with one statement whether there is anything that it must read."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event

from oncemq.ledger.coordination import pauses, recordings
from oncemq.ledger.coordination.pauses import OPERATOR, Pause
from oncemq.ledger.coordination.signals import PAUSES, SUSPECTS, LedgerSignals
from oncemq.ledger.records import suspects
from oncemq.testing.fake_clock import FakeClock

SCOPE = "shop.points"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that is blocked."""
    return FakeClock()


@pytest.fixture
def signals(engine: Engine, clock: FakeClock) -> LedgerSignals:
    """Return the signals of an app with one consumer."""
    return LedgerSignals(engine, clock, [SCOPE])


def test_rows_of_the_apps_consumers_are_seen(
    engine: Engine, clock: FakeClock, signals: LedgerSignals
) -> None:
    """A pause, a suspect and a recording; not those of others."""
    with engine.begin() as connection:
        pauses.begin(connection, Pause("other.points", OPERATOR, "a", "", NOW))
    assert not any((signals.any(PAUSES), signals.any(SUSPECTS), signals.recorded()))
    with engine.begin() as connection:
        pauses.begin(connection, Pause(SCOPE, OPERATOR, "a", "", NOW))
        suspects.charge(connection, SCOPE, "k", "i")
        recordings.begin(connection, "r", SCOPE, timedelta(minutes=1), "{}")
    clock.advance(timedelta(seconds=2))
    assert (signals.any(PAUSES), signals.any(SUSPECTS), signals.recorded()) == (True, True, True)


def test_three_questions_are_one_statement(engine: Engine, clock: FakeClock, signals: LedgerSignals) -> None:
    """For a second and a half; on PostgreSQL without BEGIN and ROLLBACK."""
    asked = list[str]()
    event.listen(
        engine, "before_cursor_execute", lambda *told: asked.append(told[2]) if told[2] != "BEGIN" else None
    )
    for _ in range(4):
        signals.any(PAUSES), signals.any(SUSPECTS), signals.recorded()
        clock.advance(timedelta(seconds=1))
    assert len(asked) == 2
    assert signals.answered(within=2.5)


def test_without_a_database_a_reader_looks_for_itself(clock: FakeClock) -> None:
    """Suspects are in a file then."""
    assert LedgerSignals(None, clock, [SCOPE]).any(SUSPECTS)
