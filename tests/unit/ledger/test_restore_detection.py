"""A moment of the ledger that only moves on: who remembers a later one knows that the ledger went back."""

from datetime import datetime, timedelta

from sqlalchemy import Engine, update

from oncemq.ledger import restore_detection
from oncemq.ledger.coordination import leases


def beat(engine: Engine, seen: datetime | None = None) -> tuple[datetime, bool]:
    """Beat once, in a transaction of its own."""
    with engine.begin() as connection:
        return restore_detection.advance(connection, "oncemq:pulse:shop.points:1", seen)


def test_the_timestamp_moves_on(engine: Engine) -> None:
    """Each moment is after the one before, also within a millisecond, and none of them was ever behind."""
    first, _ = beat(engine)
    moments = [first]
    for _ in range(5):
        moment, went_back = beat(engine, moments[-1])
        assert not went_back
        moments.append(moment)
    assert moments == sorted(set(moments))


def test_what_was_seen_and_is_gone_shows_that_the_ledger_went_back(engine: Engine) -> None:
    """Once: the timestamp continues behind what was seen."""
    seen, _ = beat(engine)
    with engine.begin() as connection:
        connection.execute(update(leases.TABLE).values(until=seen - timedelta(hours=1)))
    moment, went_back = beat(engine, seen)
    assert went_back
    assert moment > seen
    assert not beat(engine, moment)[1]


def test_a_ledger_without_its_row_went_back(engine: Engine) -> None:
    """A backup may be older than the first timestamp; a ledger that was not seen yet is no backup."""
    seen, went_back = beat(engine)
    assert not went_back
    with engine.begin() as connection:
        connection.execute(leases.TABLE.delete())
    assert beat(engine, seen)[1]
