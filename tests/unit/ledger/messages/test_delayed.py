"""Messages that were published for later: kept in the ledger, released when due, forgotten when cancelled."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from oncemq.common.clock import SystemClock
from oncemq.contracts.unit import Outgoing
from oncemq.ledger.database.server_clock import substitute_clock
from oncemq.ledger.messages import delayed, outbox
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.ledger.messages.outbox_refused import Chosen
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.fake_clock import FakeClock

NOW = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)
WINDOW = timedelta(seconds=20)
MINE = Claim("shop", "mine", NOW + WINDOW)
EVERYTHING = Chosen()


def later(key: str | None, minutes: float, name: str = "m", topic: str = "paid") -> Outgoing:
    """Return a message that is due in so many minutes."""
    due = NOW + timedelta(minutes=minutes)
    return Outgoing(topic, OutgoingMessage(b"\x00\xff", {"tenant": "é\n"}, key, name, due_at=due), None)


def cancelled(key: str | None = None, name: str | None = None, topic: str = "paid") -> Outgoing:
    """Return a cancellation."""
    return Outgoing(topic, OutgoingMessage(b"", {}, key, name), None, cancels=True)


def keep(engine: Engine, *outgoing: Outgoing, consumer: str = "shop.points") -> list[Stored]:
    """Store what a handler has published."""
    with engine.begin() as connection:
        return delayed.keep(connection, MINE, consumer, outgoing, NOW)


def released(engine: Engine, now: datetime, *besides: str) -> list[Stored]:
    """Move what is due to the outbox."""
    substitute_clock(engine, FakeClock(now))
    with engine.begin() as connection:
        return delayed.release(connection, MINE, now, 100, besides)


def names(engine: Engine, chosen: Chosen = EVERYTHING) -> list[str]:
    """Return the ids of what waits, the next one first."""
    with engine.connect() as connection:
        return [row["message_id"] for row in delayed.listed(connection, "shop", chosen, 100)]


def test_a_message_waits_and_is_then_a_row_of_the_outbox(engine: Engine) -> None:
    """Not a moment before; with its bytes, headers and id, and nothing of it is left behind."""
    assert keep(engine, later("a", 30, "m1")) == []
    assert released(engine, NOW + timedelta(minutes=30, microseconds=-1000)) == []
    (row,) = released(engine, NOW + timedelta(minutes=30))
    assert (row.topic, row.message) == ("paid", OutgoingMessage(b"\x00\xff", {"tenant": "é\n"}, "a", "m1"))
    assert names(engine) == []
    with engine.connect() as connection:
        assert outbox.depth(connection, "shop").messages == 1


def test_what_is_due_first_leaves_first(engine: Engine) -> None:
    """By the moment, then by the order of publishing, over all consumers."""
    keep(engine, later("a", 3, "m3"), later("a", 1, "m1"))
    keep(engine, later("a", 1, "m2"), consumer="shop.other")
    found = released(engine, NOW + timedelta(minutes=5))
    assert [row.message.message_id for row in found] == ["m1", "m2", "m3"]
    assert [row.id for row in found] == sorted(row.id for row in found)


def test_a_waiting_message_holds_nothing_back(engine: Engine) -> None:
    """A later message of the key that is sent at once has no older row in the outbox."""
    keep(engine, later("a", 30))
    (row,) = keep(engine, Outgoing("paid", OutgoingMessage(b"{}", {}, "a", "m2"), None))
    with engine.begin() as connection:
        assert outbox.take_over(connection, MINE, NOW + 2 * WINDOW, 100)[0].id == row.id


def test_only_what_a_cancellation_means_is_forgotten(engine: Engine) -> None:
    """By topic and key, or by id; another app's and another topic's messages stay."""
    keep(
        engine, later("a", 1, "m1"), later("b", 1, "m2"), later("a", 1, "m3", "shipped"), later("c", 1, "m4")
    )
    keep(engine, cancelled(key="a"), cancelled(name="m4"))
    assert names(engine) == ["m2", "m3"]


def test_cancellations_count_for_what_was_published_before_them(engine: Engine) -> None:
    """Also in the same call: what the handler publishes after the cancellation stays."""
    keep(engine, later("a", 1, "m1"), cancelled(key="a"), later("a", 1, "m2"))
    assert names(engine) == ["m2"]


def test_a_rolled_back_transaction_stores_and_cancels_nothing(engine: Engine) -> None:
    """Delays are part of the transaction that asked for them."""
    keep(engine, later("a", 1, "m1"))
    with engine.connect() as connection, connection.begin() as transaction:
        delayed.keep(connection, MINE, "shop.points", [cancelled(key="a"), later("a", 1, "m2")], NOW)
        transaction.rollback()
    assert names(engine) == ["m1"]


def test_a_message_of_a_broken_clock_is_not_released(engine: Engine) -> None:
    """A process whose clock is ahead of the database's sends nothing early."""
    due = SystemClock().now() + timedelta(minutes=5)
    keep(engine, Outgoing("paid", OutgoingMessage(b"{}", {}, "a", "m1", due_at=due), None))
    with engine.begin() as connection:
        assert delayed.release(connection, MINE, due + timedelta(hours=1), 100) == []


def test_topics_of_a_broker_that_is_away_are_left_out(engine: Engine) -> None:
    """They wait here instead of in the memory of the sender."""
    keep(engine, later("a", 1, "m1"), later("b", 1, "m2", "shipped"))
    found = released(engine, NOW + timedelta(minutes=2), "paid")
    assert ([row.topic for row in found], names(engine)) == (["shipped"], ["m1"])


# On SQLite one writes at a time.
@pytest.mark.parametrize(
    "database_url",
    [pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")],
    indirect=True,
)
def test_what_a_transaction_is_about_to_cancel_is_left_out(engine: Engine) -> None:
    """A slow handler that cancels does not hold up what else is due."""
    keep(engine, later("a", 1, "m1"), later("b", 1, "m2"))
    with engine.connect() as connection, connection.begin() as transaction:
        delayed.cancel(connection, "shop", Chosen(key="a"))
        assert [row.message.key for row in released(engine, NOW + timedelta(minutes=2))] == ["b"]
        transaction.rollback()
    assert [row.message.key for row in released(engine, NOW + timedelta(minutes=2))] == ["a"]


def test_the_broker_s_timer_keeps_its_moment_in_the_outbox(engine: Engine) -> None:
    """A message that its broker shall hold back is stored like one that is sent at once, with its moment."""
    due = NOW + timedelta(minutes=30)
    message = OutgoingMessage(b"{}", {"tenant": "é"}, "a", "m1", due_at=due, timer=True)
    (stored,) = keep(engine, Outgoing("paid", message, None))
    with engine.begin() as connection:
        (row,) = outbox.take_over(connection, MINE, NOW + 2 * WINDOW, 100)
    assert row.message == stored.message == message
    assert row.message.timed(NOW).delay == timedelta(minutes=30)


def test_waiting_messages_are_counted(engine: Engine) -> None:
    """With the next moment, and how many are due already."""
    keep(engine, later("a", 1), later("b", 3))
    substitute_clock(engine, FakeClock(NOW + timedelta(minutes=2)))
    with engine.connect() as connection:
        found = delayed.waiting(connection, "shop", NOW + timedelta(minutes=2))
    assert (found.messages, found.due, found.next_due) == (2, 1, NOW + timedelta(minutes=1))
