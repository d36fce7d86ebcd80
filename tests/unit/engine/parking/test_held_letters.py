"""Dead letters that hold their keys are looked after by the same commands as all others."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from oncemq.ledger.messages import parking
from oncemq.ledger.messages.parked_row import Parked
from oncemq.message import headers as names
from oncemq.message.envelope import Message
from support.apps.command_line import CommandLine

DIED = datetime(2026, 1, 1, 10, tzinfo=UTC)
CAUSE = {
    names.REASON: "rejected",
    names.ATTEMPT: "6",
    names.KEY: "a9",
    names.ERROR_TEXT: "no",
    names.LAST_FAILED_AT: DIED.isoformat(),
}


def row(body, *, dead=False):
    """Return a parked message of the key a9."""
    message = Message(
        "order.paid", body, body.decode(), {"tenant": "a", **(CAUSE if dead else {})}, attempt=6
    )
    due_at = parking.DEAD if dead else None
    return Parked(0, "a9", body.decode(), None, True, message, "why", DIED - timedelta(hours=1), due_at)


@pytest.fixture
def line(tmp_path):
    """Return an app with one dead letter on the broker, and one that holds its key before two messages."""
    line = CommandLine(tmp_path)
    line.create_tables()
    line.publish_dead_letters(b'{"order_id": "a1"}', KEY="a1", REASON="rejected", ATTEMPT="1")
    with line.plan() as plan, plan.engine.begin() as connection:
        parking.add(connection, plan.consumers[0].scope, [row(b"x1", dead=True), row(b"x2"), row(b"x3")])
    return line


def due(line):
    """Return body and time of what is parked."""
    with line.plan() as plan, plan.engine.connect() as connection:
        rows = connection.execute(parking.TABLE.select().order_by(parking.TABLE.c.id))
        return [(row.body, row.due_at) for row in rows]


def test_it_is_listed_with_the_others(line):
    """Its id says that it holds its key."""
    assert line.dead_letters() == [("held-1", "a9", "rejected", 6), ("1", "a1", "rejected", 1)]


def test_it_is_shown_whole(line):
    """Headers and body are the message's own."""
    shown = json.loads(line.run("dead-letters", "show", "award", "held-1", "--json").stdout)
    assert (shown["headers"], shown["body"]) == ({"tenant": "a"}, "x1")


def test_a_replay_sets_it_going_and_nothing_else(line):
    """The others wait until it is applied."""
    result = line.run("dead-letters", "replay", "award", "--key", "a9")
    assert (result.exit_code, result.stdout) == (0, "replayed 1 dead letter of award\n")
    first, second, third = due(line)
    assert (first[0], second, third) == (b"x1", (b"x2", None), (b"x3", None))
    assert first[1] < parking.DEAD
    assert [row[0] for row in line.dead_letters()] == ["1"]


def test_a_purge_lets_the_others_go(line):
    """In the same transaction."""
    result = line.run("dead-letters", "purge", "award", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (0, "purged 2 dead letters of award\n")
    (second, at), (third, also_at) = due(line)
    assert (second, third) == (b"x2", b"x3")
    assert None not in (at, also_at)
    assert line.dead_letters() == []


def test_inspect_says_who_waits_for_what(line):
    """The messages behind the dead letter name it."""
    shown = json.loads(line.run("inspect", "a9", "--json").stdout)
    assert [row["waits_for"] for row in shown["parked"]] == ["held-1", "held-1"]
    assert [row["id"] for row in shown["dead_letters"]] == ["held-1"]
    assert "WAITS FOR DEAD LETTER" in line.run("inspect", "a9").stdout


def test_it_counts_as_a_dead_letter_and_not_as_waiting(line):
    """`status` tells them apart."""
    shown = json.loads(line.run("status", "--json").stdout)
    (award,) = [each for each in shown["consumers"] if each["consumer"] == "award"]
    assert (award["parked"], award["dead_letters"]) == (2, 2)


@pytest.mark.parametrize("act", ["replay", "purge"])
def test_a_database_that_refuses_is_an_error_in_words(line, act):
    """The letter stays, and the program shows no traceback."""
    with line.plan() as plan, plan.engine.begin() as connection:
        for change in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER no_{change} BEFORE {change} ON oncemq_parked BEGIN SELECT RAISE(ABORT, 'not now'); END"
            )
    result = line.run("dead-letters", act, "award", "--id", "held-1", *(["--yes"] if act == "purge" else []))
    assert result.exit_code != 0
    assert "cannot be changed now, nothing is lost" in result.stderr
    assert "not now" in result.stderr
    assert "Traceback" not in result.output
    assert "held-1" in {row[0] for row in line.dead_letters()}
