"""Rows of parked messages: which of them wait for a turn of their own."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, select

from oncemq.ledger.messages import parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.message.envelope import Message

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_row_that_is_not_held_any_more_keeps_its_turn(engine: Engine) -> None:
    """A process that still takes it for held, since another one freed it meanwhile, does not put it to sleep for ever."""
    turn = NOW + timedelta(seconds=5)
    with engine.begin() as connection:
        rows = [
            Parked(0, "a", identity, None, True, Message("t", b"{}"), "", NOW, NOW)
            for identity in ("a:5", "a:6")
        ]
        parking.add(connection, "shop.points", rows)
        held = parking.held(connection, "shop.points", ["a"], 9)["a"]
        assert parking.renew(connection, held[1], NOW, turn, free=True)
        parking.wait_behind(connection, held)
        found = connection.execute(select(parking.TABLE.c.due_at).order_by(parking.TABLE.c.id)).scalars()
        assert list(found) == [None, turn]
