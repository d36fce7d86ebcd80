"""What `outbox list` and `show` print, `retry` makes due and `drop` gives up: only what a broker has refused."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from oncemq.common.clock import SystemClock
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import Claim
from oncemq.message.envelope import OutgoingMessage
from support.apps.command_line import CommandLine

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.fixture
def line(tmp_path) -> Iterator[CommandLine]:
    """Return an app with two refused messages of one key and one of another, and one that no one has refused."""
    line = CommandLine(tmp_path)
    line.create_tables()
    claim = Claim("loyalty", "me", NOW)
    with line.plan() as plan, plan.engine.begin() as connection:
        messages = [
            (topic, OutgoingMessage(b"{}", {}, key, name))
            for topic, key, name in (
                ("notes", "a", "m1"),
                ("notes", "a", "m2"),
                ("gone", "b", "m3"),
                ("notes", "c", "m4"),
            )
        ]
        rows = outbox.add(connection, claim, "loyalty.award", messages, NOW)
        due_at = NOW + timedelta(minutes=5)
        outbox.refused(connection, claim, [row.id for row in rows[:3]], due_at, "BrokerRefused: no queue")
    return line


def ids(line: CommandLine, *arguments: str) -> list[str]:
    """Return the ids that `outbox list` shows."""
    printed = line.run("outbox", "list", *arguments, "--json").stdout
    return [json.loads(line)["message_id"] for line in printed.splitlines()]


def left(line: CommandLine) -> int:
    """Return how much the outbox holds."""
    with line.plan() as plan, plan.engine.connect() as connection:
        return outbox.depth(connection, "loyalty").messages


def take_over(line: CommandLine, now: datetime, until: datetime) -> None:
    """Have a process take over the oldest row."""
    with line.plan() as plan, plan.engine.begin() as connection:
        assert len(outbox.take_over(connection, Claim("loyalty", "other", until), now, 1)) == 1


def test_what_is_refused_is_listed(line):
    """With its topic, key, publisher, error and next try; what no one refused is not there."""
    result = line.run("outbox", "list", "gone")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "STATE  TOPIC  ID  KEY  PUBLISHED BY  SINCE                 REFUSED  NEXT TRY              ERROR\n"
        "waits  gone   m3  b    award         2026-03-01T12:30:00Z  1        2026-03-01T12:35:00Z  BrokerRefused: no queue\n"
    )
    assert ids(line) == ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["notes"], ["m1", "m2"]),
        (["--key", "b"], ["m3"]),
        (["--id", "m1", "--id", "m3"], ["m1", "m3"]),
        (["notes", "--id", "m3"], []),
        (["--limit", "1"], ["m1"]),
    ],
)
def test_a_list_can_be_restricted(line, arguments, found):
    """By topic, key, id, and number."""
    assert ids(line, *arguments) == found


def publish_dead_letters(line: CommandLine, message_id: str) -> None:
    """Make a row that its broker has refused a dead letter."""
    with line.plan() as plan, plan.engine.begin() as connection:
        row = connection.execute(select(outbox.TABLE.c.id).where(outbox.TABLE.c.message_id == message_id))
        outbox.dead_letter(
            connection, Claim("loyalty", "", NOW), [row.scalar_one()], NOW, "Unroutable: no queue"
        )


def test_a_message_is_shown_whole(line):
    """With state, error, headers and body; for scripts as JSON."""
    publish_dead_letters(line, "m3")
    result = line.run("outbox", "show", "m3")
    assert result.exit_code == 0
    assert "state:        dead letter\n" in result.stdout
    assert "next try:     -\n" in result.stdout
    assert "error:        Unroutable: no queue\n" in result.stdout
    assert result.stdout.endswith("body:\n{}\n")
    found = json.loads(line.run("outbox", "show", "m3", "--json").stdout)
    assert (found["body"], found["headers"], found["state"]) == ("{}", {}, "dead letter")


def test_a_message_that_is_not_there_is_said(line):
    """With exit code 1; what no one refused is not there either."""
    result = line.run("outbox", "show", "m4")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no refused message m4" in result.stderr


def test_a_retry_makes_messages_due(line):
    """Dead letters too; what no one has refused is left as it is."""
    publish_dead_letters(line, "m3")
    result = line.run("outbox", "retry", "--all", "--json")
    assert json.loads(result.stdout) == {"due": 3}
    with line.plan() as plan, plan.engine.begin() as connection:
        taken = outbox.take_over(connection, Claim("loyalty", "other", NOW), plan.clock.now(), 10)
    assert sorted(delivery.message.message_id for delivery in taken) == ["m1", "m2", "m3", "m4"]


def test_a_retry_needs_a_choice(line):
    """As a drop does."""
    assert line.run("outbox", "retry").exit_code == 2


def test_a_dead_letter_is_dropped(line):
    """No process is sending it, so it goes at once."""
    publish_dead_letters(line, "m3")
    assert line.run("outbox", "drop", "--id", "m3", "--yes").stdout == "dropped 1 message\n"


def test_status_asks_for_a_person(line):
    """Dead letters of the outbox are a reason for exit code 1, with what to do."""
    publish_dead_letters(line, "m3")
    result = line.run("status")
    assert result.exit_code == 1
    assert (
        "1 unroutable message kept in the outbox: `oncemq outbox list`, then retry or drop" in result.stderr
    )


def test_one_message_is_dropped(line):
    """The others stay, refused or not."""
    result = line.run("outbox", "drop", "--id", "m1", "--yes")
    assert (result.exit_code, result.stdout) == (0, "dropped 1 message\n")
    assert (ids(line), left(line)) == (["m2", "m3"], 3)


def test_all_that_is_refused_is_dropped(line):
    """Also to topics that are in the app no more; what no one refused stays."""
    result = line.run("outbox", "drop", "--all", "--yes", "--json")
    assert json.loads(result.stdout) == {"dropped": 3, "being_sent": 0}
    assert left(line) == 1


def test_what_is_being_sent_stays(line):
    """A process that has taken a message over may be giving it to the broker now."""
    now = SystemClock().now()
    take_over(line, now, until=now + timedelta(minutes=1))
    result = line.run("outbox", "drop", "--all", "--yes")
    assert result.stdout == (
        "dropped 2 messages\n1 message stayed: the running app is trying again just now\n"
    )
    assert ids(line) == ["m1"]


def test_what_a_dead_process_was_sending_is_dropped(line):
    """Its time is over, and no one else has begun."""
    now = SystemClock().now()
    take_over(line, now - timedelta(minutes=1), until=now - timedelta(seconds=1))
    assert line.run("outbox", "drop", "--all", "--yes").stdout == "dropped 3 messages\n"


@pytest.mark.parametrize("arguments", [[], ["notes"], ["--all", "--key", "a"]])
def test_dropping_needs_a_choice(line, arguments):
    """Nothing is dropped by leaving something out, not even of one topic."""
    result = line.run("outbox", "drop", *arguments, "--yes")
    assert result.exit_code == 2
    assert "say which: --id or --key; or --all" in result.stderr
    assert left(line) == 4


def test_dropping_is_asked_about(line):
    """Anyone who says no loses nothing."""
    result = line.run("outbox", "drop", "--all", stdin="n\n")
    assert "Permanently drop these messages to all topics?" in result.stderr
    assert (result.exit_code != 0, left(line)) == (True, 4)


def test_an_app_without_database_has_no_outbox(tmp_path):
    """It says so in words."""
    line = CommandLine(tmp_path)
    line.app.write_text(
        "app: loyalty\nbrokers: {shop: {url: 'embedded://'}}\ntopics: {t: {key: body.id, strategies: [none]}}\n"
        "consumers: {c: {topic: t, handler: 'plain:handle'}}\n"
    )
    (tmp_path / "plain.py").write_text("def handle(body: dict) -> None: ...\n")
    result = line.run("outbox", "list")
    assert result.exit_code == 3
    assert "the app has no database, so it has no outbox" in result.stderr
