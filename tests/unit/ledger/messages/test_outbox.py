"""Rows of the outbox: who may send them, in which order, and what happens when their owner is gone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from oncemq.ledger.messages import outbox, outbox_order
from oncemq.ledger.messages.outbox import Claim, Stored
from oncemq.message.envelope import OutgoingMessage

NOW = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)
WINDOW = timedelta(seconds=20)
MINE = Claim("shop", "mine", NOW + WINDOW)
YOURS = Claim("shop", "yours", NOW + WINDOW)


def message(key: str | None, body: bytes = b"{}") -> OutgoingMessage:
    """Return a message of a key."""
    return OutgoingMessage(body, {"tenant": "é\n"}, key, "id-1")


def add(engine: Engine, claim: Claim, *keys: str | None, topic: str = "paid") -> list[Stored]:
    """Store one message for each key."""
    with engine.begin() as connection:
        return outbox.add(connection, claim, "shop.points", [(topic, message(key)) for key in keys], NOW)


def sendable(engine: Engine, claim: Claim, rows: list[Stored], until: datetime = NOW) -> dict[int, bool]:
    """Return which rows are the claim's, and which of them may be sent."""
    return outbox_order.sent_then_sendable(engine, claim, (), rows, until)


def taken(engine: Engine, claim: Claim, now: datetime) -> list[Stored]:
    """Take over what is due."""
    with engine.begin() as connection:
        return outbox.take_over(connection, claim, now, 100)


def test_messages_come_back_as_they_were_published(engine: Engine) -> None:
    """Bytes that are no text, headers of any script and missing keys survive, in order."""
    bodies = [b"\x00\xff", b"x" * 100_000, b""]
    given = [("paid", message(key, body)) for key, body in zip(["a", None, "b"], bodies, strict=True)]
    with engine.begin() as connection:
        stored = outbox.add(connection, MINE, "shop.points", given, NOW)
    later = Claim("shop", "yours", NOW + 2 * WINDOW)
    found = taken(engine, later, NOW + WINDOW)
    assert found == stored
    assert [(row.topic, row.message) for row in found] == given


def test_a_hundred_messages_are_numbered_in_order(engine: Engine) -> None:
    """The order of numbers is the order of publishing."""
    rows = add(engine, MINE, *(f"k{number}" for number in range(100)))
    assert [row.message.key for row in taken(engine, YOURS, NOW + WINDOW)] == [
        row.message.key for row in rows
    ]
    assert [row.id for row in rows] == sorted(row.id for row in rows)


def test_a_row_waits_for_an_older_one_of_its_key(engine: Engine) -> None:
    """What another process stored before and has not sent holds back the same key and topic, and nothing else."""
    add(engine, YOURS, "a")
    blocked, free, keyless = add(engine, MINE, "a", "b", None)
    (elsewhere,) = add(engine, MINE, "a", topic="shipped")
    found = sendable(engine, MINE, [blocked, free, keyless, elsewhere])
    assert found == {blocked.id: False, free.id: True, keyless.id: True, elsewhere.id: True}


def test_rows_that_are_sent_together_do_not_wait_for_each_other(engine: Engine) -> None:
    """A key's rows in one hand are in order there."""
    rows = add(engine, MINE, "a", "a")
    assert sendable(engine, MINE, rows) == {row.id: True for row in rows}
    assert sendable(engine, MINE, rows[1:]) == {rows[1].id: False}


def test_other_apps_and_keyless_rows_hold_nothing_back(engine: Engine) -> None:
    """Apps that share a database have outboxes of their own."""
    add(engine, Claim("other", "yours", NOW + WINDOW), "a", None)
    rows = add(engine, MINE, "a", None)
    assert all(sendable(engine, MINE, rows).values())
    assert taken(engine, MINE, NOW + WINDOW) == rows


def test_what_is_sent_is_deleted_and_holds_nothing_back(engine: Engine) -> None:
    """A confirmed row that is in memory twice is not sent again, and the next one of its key may be sent."""
    first, second, third = add(engine, MINE, "a", "a", "b")
    found = outbox_order.sent_then_sendable(engine, MINE, [first.id], [first, second], NOW)
    assert found == {second.id: True}
    assert sendable(engine, MINE, [second, third]) == {second.id: True, third.id: True}
    assert outbox_order.sent_then_sendable(engine, MINE, [second.id, third.id], (), NOW) == {}
    with engine.connect() as connection:
        assert outbox.depth(connection, "shop").messages == 0


def test_a_sent_row_that_another_relay_took_over_holds_its_key_back(engine: Engine) -> None:
    """It is not deleted, since its new owner may be about to send it: later ones come after that."""
    (first,) = add(engine, MINE, "a")
    (second,) = add(engine, replace(MINE, due_at=NOW + 3 * WINDOW), "a")
    assert taken(engine, Claim("shop", "yours", NOW + 2 * WINDOW), NOW + WINDOW) == [first]
    found = outbox_order.sent_then_sendable(engine, MINE, [first.id], [second], NOW)
    assert found == {second.id: False}


def test_a_claim_that_ends_soon_is_left_alone(engine: Engine) -> None:
    """Someone else may take such rows over while they are being sent."""
    rows = add(engine, MINE, "a")
    assert sendable(engine, MINE, rows, NOW + WINDOW) == {}
    assert sendable(engine, YOURS, rows) == {}


def test_a_rolled_back_number_is_not_taken_for_the_next_row(engine: Engine) -> None:
    """SQLite gives a rolled-back row's number to the next row: the message in memory is not sent in its place."""
    (row,) = add(engine, MINE, "a")
    rolled_back = replace(row, message=replace(row.message, message_id="id-2"))
    assert sendable(engine, MINE, [rolled_back]) == {}


def test_only_the_owner_deletes(engine: Engine) -> None:
    """A process that lost its rows to another cannot delete what that one may still be sending."""
    (row,) = add(engine, MINE, "a")
    assert taken(engine, Claim("shop", "yours", NOW + 2 * WINDOW), NOW + WINDOW) == [row]
    with engine.begin() as connection:
        outbox.sent(connection, MINE, [row.id])
        outbox.refused(connection, MINE, [row.id], NOW, "too late")
        assert outbox.depth(connection, "shop") == outbox.Depth(1, NOW, 0)
        outbox.sent(connection, YOURS, [row.id])
        assert outbox.depth(connection, "shop") == outbox.Depth(0, None, 0)


def test_nothing_is_taken_over_before_it_is_due(engine: Engine) -> None:
    """Rows belong to the process that stored them until its claim ends."""
    add(engine, MINE, "a")
    assert taken(engine, YOURS, NOW + WINDOW - timedelta(microseconds=1)) == []


def test_what_waits_behind_a_refused_row_is_not_taken_over(engine: Engine) -> None:
    """The rest of its key comes with it, when it is due again; other keys at once."""
    first, second, other = add(engine, MINE, "a", "a", "b")
    due = NOW + 2 * WINDOW
    with engine.begin() as connection:
        outbox.refused(connection, MINE, [first.id], due, "no queue")
    yours = Claim("shop", "yours", NOW + 4 * WINDOW)
    assert taken(engine, yours, NOW + WINDOW) == [other]
    found = taken(engine, yours, due)
    assert [(row.id, row.attempts) for row in found] == [(first.id, 1), (second.id, 0)]


def test_what_waits_for_a_key_can_be_read(engine: Engine) -> None:
    """For people: what it is, since when, how often it was refused and why."""
    (row,) = add(engine, MINE, "a")
    with engine.begin() as connection:
        outbox.refused(connection, MINE, [row.id], NOW + WINDOW, "no queue")
        (found,) = outbox.of_key(connection, "shop", "a")
    assert (found["topic"], found["message_id"], found["attempts"], found["error"]) == (
        "paid",
        "id-1",
        1,
        "no queue",
    )
    assert found["created_at"] == NOW


@pytest.mark.parametrize("now", [NOW, NOW + WINDOW])
def test_a_look_says_whether_anything_is_due(engine: Engine, now: datetime) -> None:
    """The look takes no lock, so it may be had often."""
    add(engine, MINE, "a")
    with engine.connect() as connection:
        assert outbox.any_due(connection, "shop", now) is (now > NOW)
