"""Dead letters that the ledger keeps."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from oncemq.contracts.adapter import DeadLetter
from oncemq.ledger.messages import dead_letters
from oncemq.message.envelope import Message

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_whatever_a_message_holds_is_kept(engine: Engine) -> None:
    """NUL, half surrogate pairs, bytes of every value, large bodies, and the raw form come back as they were."""
    message = Message(
        "orders",
        bytes(range(256)) * 1000,
        "id\0\ud800",
        {"h\0": "\udfff", "x": "y" * 200_000},
        ("k\0",),
        attempt=3,
        published_at=NOW,
        first_failed_at=NOW,
        raw=bytes(range(256)) * 300,
    )
    with engine.begin() as connection:
        dead_letters.add(connection, "shop.points", message, {"oncemq-reason": "rejected"}, NOW)
    with engine.begin() as connection:
        (letter,) = dead_letters.letters(connection, "shop.points")
        assert list(dead_letters.letters(connection, "shop.other")) == []
    kept = letter.message
    assert (kept.body, kept.message_id, kept.keys, kept.raw) == (
        message.body,
        message.message_id,
        message.keys,
        message.raw,
    )
    assert kept.headers == {**message.headers, "oncemq-reason": "rejected"}
    assert (kept.attempt, kept.published_at, kept.first_failed_at, letter.dead_at) == (3, NOW, NOW, NOW)


def _two_and_anothers(engine: Engine) -> list[DeadLetter]:
    """Store two letters of consumer `a` and one of `b`; returns them."""
    with engine.begin() as connection:
        for consumer in ("a", "a", "b"):
            dead_letters.add(connection, consumer, Message("orders", b""), {}, NOW)
        return [letter for consumer in "ab" for letter in dead_letters.letters(connection, consumer)]


def test_removing_takes_what_is_named(engine: Engine) -> None:
    """Another consumer's letters, and those of a broker, stay."""
    first, second, other = _two_and_anothers(engine)
    with engine.begin() as connection:
        assert dead_letters.remove(connection, "a", [first.id, other.id, "7", "ledger-x"]) == 1
        assert [letter.id for letter in dead_letters.letters(connection, "a")] == [second.id]
        assert [letter.id for letter in dead_letters.letters(connection, "b")] == [other.id]


def test_letters_are_looked_up_by_their_ids(engine: Engine) -> None:
    """Only those of the consumer; ids that no database could know are no error."""
    first, second, other = _two_and_anothers(engine)
    with engine.begin() as connection:
        strange = ["7", "ledger-x", "ledger-\u00b2", f"ledger-{2**64}"]
        found = dead_letters.letters(connection, "a", [second.id, other.id, *strange])
        assert [letter.id for letter in found] == [second.id]
        assert list(dead_letters.letters(connection, "a", strange)) == []
        assert dead_letters.remove(connection, "a", [first.id, *strange]) == 1


def test_the_first_letters_of_many_are_not_all_looked_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their numbers are read in parts, in order, none left out; those that come meanwhile are for the next list."""
    monkeypatch.setattr(dead_letters, "_PARTS", (1, 2))
    with engine.begin() as connection:
        for number in range(5):
            dead_letters.add(connection, "a", Message("orders", b"%d" % number), {}, NOW)
    with engine.begin() as connection:
        found = dead_letters.letters(connection, "a")
        bodies = [next(found).message.body]
        dead_letters.add(connection, "a", Message("orders", b"late"), {}, NOW)
        bodies += [letter.message.body for letter in found]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("parts", [(1, 2), (3, 3), (64, 512)])
def test_heads_are_read_without_their_bodies(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, parts: tuple[int, int]
) -> None:
    """Everything else is there, in order, however many are read at once; a body is read where its headers ask for it."""
    monkeypatch.setattr(dead_letters, "_PARTS", parts)
    with engine.begin() as connection:
        for number in range(6):
            headers = {"n": str(number)}
            dead_letters.add(connection, "a", Message("orders", b"%d" % number, "m"), headers, NOW)
            dead_letters.add(connection, "b", Message("orders", b"other"), {}, NOW)
    with engine.begin() as connection:
        found = list(dead_letters.heads(connection, "a", whole=lambda headers: headers["n"] in "14"))
        whole = list(dead_letters.letters(connection, "a"))
    assert [letter.message.body for letter in found] == [b"", b"1", b"", b"", b"4", b""]
    assert [replace(letter.message, body=b"") for letter in found] == [
        replace(letter.message, body=b"") for letter in whole
    ]
    assert [(letter.id, letter.dead_at) for letter in found] == [(each.id, each.dead_at) for each in whole]


def test_what_is_behind_a_letter_is_read_from_there(engine: Engine) -> None:
    """Also when that letter is gone; an id that no row can have stands before all of them."""
    first, second, _ = _two_and_anothers(engine)
    with engine.begin() as connection:
        dead_letters.remove(connection, "a", [first.id])

        def behind(after: str | None) -> list[str]:
            heads = dead_letters.heads(connection, "a", after=after, whole=lambda _: False)
            found = [letter.id for letter in heads]
            whole = dead_letters.letters(connection, "a", after=after)
            assert [letter.id for letter in whole] == found
            return found

        assert behind(first.id) == behind("ledger-x") == behind(None) == [second.id]
        assert behind(second.id) == []
