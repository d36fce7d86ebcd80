"""What `outbox list` shows and `outbox drop` gives up: only what a broker has refused and nobody is sending."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from oncemq.clock import SystemClock
from oncemq.ledger import outbox
from oncemq.ledger.outbox import Claim
from oncemq.message.envelope import OutgoingMessage
from support.command_line import CommandLine

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.fixture
def line(tmp_path) -> Iterator[CommandLine]:
    """Return an app with two refused messages of one key and one of another, and one that nobody has refused."""
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
    return [json.loads(one)["message_id"] for one in printed.splitlines()]


def left(line: CommandLine) -> int:
    """Return how much the outbox holds."""
    with line.plan() as plan, plan.engine.connect() as connection:
        return outbox.depth(connection, "loyalty").messages


def take_over(line: CommandLine, now: datetime, until: datetime) -> None:
    """Have a process take over the oldest row."""
    with line.plan() as plan, plan.engine.begin() as connection:
        assert len(outbox.take_over(connection, Claim("loyalty", "other", until), now, 1)) == 1


def test_what_is_refused_is_listed(line):
    """With its topic, key, publisher, error and next try; what nobody refused is not there."""
    result = line.run("outbox", "list", "gone")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "TOPIC  ID  KEY  PUBLISHED BY  SINCE                 REFUSED  NEXT TRY              ERROR\n"
        "gone   m3  b    award         2026-03-01T12:30:00Z  1        2026-03-01T12:35:00Z  BrokerRefused: no queue\n"
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


def test_one_message_is_dropped(line):
    """The others stay, refused or not."""
    result = line.run("outbox", "drop", "--id", "m1", "--yes")
    assert (result.exit_code, result.stdout) == (0, "dropped 1 message\n")
    assert (ids(line), left(line)) == (["m2", "m3"], 3)


def test_all_that_is_refused_is_dropped(line):
    """Also to topics that are in the app no more; what nobody refused stays."""
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
    """Its time is over, and nobody else has begun."""
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
    """Whoever says no loses nothing."""
    result = line.run("outbox", "drop", "--all", stdin="n\n")
    assert "Give up these messages to all topics for ever?" in result.stderr
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
