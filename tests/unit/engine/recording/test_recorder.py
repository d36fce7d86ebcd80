"""Recording in a worker: what is noted, what it costs when it is off, and how it ends."""

import json
import zlib
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.exc import OperationalError

from oncemq.contracts.verdict import DUPLICATE, PROCEED, RETURNED, Verdict, before_a_try, reject, retry
from oncemq.engine.recording import recorder as recording_in_workers
from oncemq.engine.recording.lines import MASKED, Wanted
from oncemq.engine.recording.recorder import READ_EVERY, TrafficRecorder
from oncemq.errors import Reject, Undecodable
from oncemq.ledger import schema
from oncemq.ledger.coordination import recordings
from oncemq.ledger.database.engine import make_engine
from oncemq.message.envelope import Delivery, Message, make_envelope
from oncemq.testing.fake_clock import FakeClock

SCOPE, NAME = "shop.pay", "pay"
BODY = {
    "id": "a",
    "customer": {"email": "ann@example.com"},
    "lines": [{"name": "x"}, {"name": "y"}],
    "n": None,
}


@pytest.fixture
def engine(database_url: str) -> Any:
    """A ledger."""
    engine = make_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


class Worker:
    """A process whose consumer `pay` may be recorded."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = FakeClock()
        self.recorder = TrafficRecorder()

    def look(self) -> None:
        """Let two seconds pass, and look."""
        self.clock.advance(timedelta(seconds=READ_EVERY))
        self.recorder.look(self.engine, self.clock, {SCOPE: (NAME, lambda message: json.loads(message.body))})

    def judge(self, verdict: Verdict, **more: Any) -> None:
        """Bring a message to its end."""
        self.recorder.judged(NAME, [(delivery(**more), verdict)])


def delivery(key: str = "a", body: bytes = json.dumps(BODY).encode(), **more: Any) -> Delivery:
    """Return a message of a key."""
    message = Message("orders", body, message_id="m1", **more)
    found = Delivery(message)
    found.envelope = make_envelope("main", "orders", "g", key, 3, f"{key}:3", message)
    return found


def begin(engine: Engine, **wanted: Any) -> str:
    """Ask for a recording that goes on for an hour."""
    with engine.begin() as connection:
        # The worker's clock stands far before the database's.
        until = recordings.begin(
            connection, "r1", SCOPE, timedelta(hours=1), Wanted(salt="s", **wanted).as_json()
        )
    assert until is not None
    return "r1"


def stored(engine: Engine) -> list[dict[str, Any]]:
    """Return the lines that the command would fetch."""
    with engine.connect() as connection:
        parts = recordings.fetch(connection, "r1", 100)
    return [json.loads(line) for _, part, _ in parts for line in zlib.decompress(part).decode().splitlines()]


def test_nothing_is_noted_unless_an_operator_asks(engine: Engine) -> None:
    """Without a recording a unit costs one look-up, and a look no row."""
    worker = Worker(engine)
    worker.look()
    worker.judge(PROCEED)
    worker.look()
    begin(engine)
    worker.look()
    assert stored(engine) == []
    worker.judge(PROCEED)
    worker.look()
    assert [line["outcome"] for line in stored(engine)] == ["applied"]


def test_a_line_says_what_arrived_and_how_it_ended(engine: Engine) -> None:
    """Bodies and headers are not in it unless asked for; what is not decided yet is no line."""
    worker = Worker(engine)
    begin(engine)
    worker.look()
    worker.judge(PROCEED, headers={"tenant": "t1"})
    worker.judge(DUPLICATE)
    worker.judge(RETURNED)
    worker.judge(before_a_try(retry("early")))
    worker.judge(retry("failed"), attempt=2)
    worker.judge(reject("no", error=Reject("no")))
    worker.recorder.dead_lettered(NAME, delivery(), code="rejected")
    unreadable = Delivery(Message("orders", b"?"))
    unreadable.refusal = Undecodable("no JSON")
    worker.recorder.dead_lettered(NAME, unreadable, code="undecodable")
    worker.look()
    lines = stored(engine)
    assert [(line["outcome"], line.get("tried", False), line.get("code", "")) for line in lines] == [
        ("applied", True, ""),
        ("duplicate", False, ""),
        ("retry", False, ""),
        ("retry", True, ""),
        ("rejected", True, "rejected"),
        ("dead", False, "rejected"),
        ("rejected", False, "undecodable"),
    ]
    first = lines[0]
    assert (first["key"], first["identity"], first["version"], first["id"]) == ("a", "a:3", 3, "m1")
    assert lines[3]["attempt"] == 2
    assert "body" not in first
    assert "headers" not in first
    assert "ann" not in json.dumps(lines)


def test_masks_replace_values_and_keep_equality(engine: Engine) -> None:
    """A masked value is not in the ledger at all; equal ones are equal, lists are walked through."""
    worker = Worker(engine)
    begin(engine, bodies=True, masks=("customer.email", "lines.name", "n", "no.such"), headers=("Tenant",))
    worker.look()
    worker.judge(PROCEED, headers={"tenant": "t1", "secret": "s1"})
    worker.judge(PROCEED)
    worker.judge(PROCEED, body=b'"text"')
    worker.judge(PROCEED, body=b"{")
    worker.look()
    first, second, *others = stored(engine)
    assert first["body"]["customer"]["email"].startswith(MASKED)
    assert first["body"] == second["body"]
    assert [line["name"][:7] for line in first["body"]["lines"]] == [MASKED, MASKED]
    assert first["body"]["lines"][0] != first["body"]["lines"][1]
    assert (first["body"]["id"], first["body"]["n"]) == ("a", None)
    assert first["headers"] == {"tenant": "t1"}
    assert all("body" not in line for line in others)


def test_single_fields_are_recorded_alone(engine: Engine) -> None:
    """What is not named is not in the ledger."""
    worker = Worker(engine)
    begin(engine, fields=("id", "customer.email", "no.such"))
    worker.look()
    worker.judge(PROCEED)
    worker.look()
    (line,) = stored(engine)
    assert line["body"] == {"id": "a", "customer": {"email": "ann@example.com"}}


def test_a_recording_that_ends_keeps_what_was_noted_last(engine: Engine) -> None:
    """The worker stores it when it sees the end, and notes nothing more."""
    worker = Worker(engine)
    begin(engine)
    worker.look()
    worker.judge(PROCEED, key="a")
    with engine.begin() as connection:
        recordings.end(connection, "r1")
    worker.look()
    worker.judge(PROCEED, key="b")
    worker.look()
    assert [line["key"] for line in stored(engine)] == ["a"]


def test_a_command_that_died_leaves_nothing_behind(engine: Engine) -> None:
    """A worker stops thirty seconds after the command was last seen, and removes what it has left."""
    worker = Worker(engine)
    begin(engine)
    worker.look()
    worker.judge(PROCEED)
    worker.look()
    with engine.begin() as connection:
        seen = recordings.TABLE.c.seen_at
        (now,) = connection.execute(recordings.TABLE.select().with_only_columns(seen)).one()
        connection.execute(update(recordings.TABLE).values(seen_at=now - timedelta(seconds=31)))
    worker.look()
    with engine.connect() as connection:
        assert connection.execute(recordings.TABLE.select()).all() == []
        assert connection.execute(recordings.RECORDED.select()).all() == []


def test_one_consumer_is_recorded_once_at_a_time(engine: Engine) -> None:
    """A second command is told so; after the end of the first, its remains are removed."""
    begin(engine)
    with engine.begin() as connection:
        assert recordings.begin(connection, "r2", SCOPE, timedelta(hours=1), "{}") is None
        assert recordings.begin(connection, "r3", "shop.other", timedelta(hours=1), "{}") is not None
        recordings.add(connection, "r1", b"", 0)
        recordings.add(connection, "gone", b"", 0)
        recordings.end(connection, "r1")
        assert recordings.begin(connection, "r2", SCOPE, timedelta(hours=1), "{}") is not None
        assert connection.execute(recordings.RECORDED.select()).all() == []
        assert not recordings.renew(connection, "r1")
        assert recordings.renew(connection, "r2")


def test_what_has_no_room_is_counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process keeps a bounded number of notes; the command learns how many it has lost."""
    monkeypatch.setattr(recording_in_workers, "MOST_NOTES", 2)
    worker = Worker(engine)
    begin(engine)
    worker.look()
    for _ in range(5):
        worker.judge(PROCEED)
    worker.look()
    with engine.connect() as connection:
        ((_, _, lost),) = recordings.fetch(connection, "r1", 100)
    assert (len(stored(engine)), lost) == (2, 3)


def test_bodies_that_were_fetched_from_a_store_take_room(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their message is small, and they lie in this process's memory until they are stored."""
    monkeypatch.setattr(recording_in_workers, "_MOST_BYTES", 1200)
    worker = Worker(engine)
    begin(engine)
    worker.look()
    for _ in range(3):
        worker.judge(PROCEED, claimed=b"x" * 400)
    worker.look()
    with engine.connect() as connection:
        ((_, _, lost),) = recordings.fetch(connection, "r1", 100)
    assert (len(stored(engine)), lost) == (2, 1)


def test_a_database_that_is_away_loses_no_notes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are stored when it is back, in their order."""
    worker = Worker(engine)
    begin(engine)
    worker.look()
    worker.judge(PROCEED, key="a")
    add = recordings.add

    def away(*_: Any) -> None:
        raise OperationalError("INSERT", {}, Exception("away"))

    monkeypatch.setattr(recordings, "add", away)
    with pytest.raises(OperationalError):
        worker.look()
    worker.judge(PROCEED, key="b")
    monkeypatch.setattr(recordings, "add", add)
    worker.look()
    assert [line["key"] for line in stored(engine)] == ["a", "b"]
