"""What the commands for dead letters show and do."""

import json

import pytest

from oncemq.cli.exit_codes import INTERRUPTED
from support.apps.command_line import CommandLine


@pytest.fixture
def line(tmp_path):
    """Return an app with three dead letters of award."""
    line = CommandLine(tmp_path)
    assert line.run("tables", "create").exit_code == 0
    common = {"ATTEMPT": "6", "ERROR_CLASS": "KeyError", "ERROR_TEXT": "'user'"}
    line.publish_dead_letters(
        b'{"order_id": "a1"}',
        KEY="a1",
        REASON="exhausted",
        FIRST_FAILED_AT="2026-01-01T10:00:00+00:00",
        **common,
    )
    line.publish_dead_letters(
        b'{"order_id": "a2"}', KEY="a2", REASON="rejected", ATTEMPT="1", ERROR_TEXT="no such user"
    )
    line.publish_dead_letters(b"\xff\xfe", REASON="undecodable", ATTEMPT="1")
    return line


def listed(line, *arguments):
    """Return the rows that `list --json` prints."""
    result = line.run("dead-letters", "list", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(row) for row in result.stdout.splitlines()]


def without_times(text):
    """Return a plain table without its column of times, which differ in each run."""
    return [
        [cell for cell in row.split("  ") if cell and not cell.strip().startswith("20")]
        for row in text.splitlines()
    ]


def test_list_shows_plain_columns_in_a_pipe(line):
    """Each dead letter is one line: whose, which, why."""
    result = line.run("dead-letters", "list")
    assert result.exit_code == 0, result.output
    head, *rows = [[cell.strip() for cell in row] for row in without_times(result.stdout)]
    assert head == ["CONSUMER", "ID", "KEY", "REASON", "ATTEMPTS", "DEAD AT", "ERROR"]
    assert rows == [
        ["award", "1", "a1", "exhausted", "6", "KeyError: 'user'"],
        ["award", "2", "a2", "rejected", "1", "no such user"],
        ["award", "3", "-", "undecodable", "1", "-"],
    ]


def test_list_as_json_has_one_object_per_line(line):
    """A script gets every field."""
    first = listed(line)[0]
    assert first.pop("dead_at")
    assert first.pop("published_at")
    assert first == {
        "consumer": "award",
        "id": "1",
        "key": "a1",
        "reason": "exhausted",
        "attempts": 6,
        "error": "KeyError: 'user'",
        "topic": "order.paid",
        "message_id": "m-1",
        "first_failed_at": "2026-01-01T10:00:00+00:00",
        "last_failed_at": None,
    }


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("--key", "a2"), ["2"]),
        (("--reason", "undecodable"), ["3"]),
        (("--id", "1", "--id", "3"), ["1", "3"]),
        (("--limit", "2"), ["1", "2"]),
        (("--key", "a1", "--reason", "rejected"), []),
        (("award",), ["1", "2", "3"]),
        (("mail",), []),
    ],
)
def test_list_can_be_restricted(line, arguments, ids):
    """Consumer, key, reason, id and limit choose."""
    assert [row["id"] for row in listed(line, *arguments)] == ids


def test_an_empty_list_says_so(line):
    """People read a sentence, not nothing."""
    assert line.run("dead-letters", "list", "mail").stdout == "no dead letters\n"


def test_an_unknown_consumer_is_refused_with_a_suggestion(line):
    """A typing mistake does not look like an empty list."""
    result = line.run("dead-letters", "list", "awrd")
    assert result.exit_code != 0
    assert "unknown consumer 'awrd'; did you mean 'award'?" in result.stderr


def test_show_prints_the_cause_and_the_body(line):
    """One dead letter is shown whole."""
    result = line.run("dead-letters", "show", "award", "1")
    assert result.exit_code == 0, result.output
    shown = [
        text for text in result.stdout.splitlines() if not text.startswith(("dead at:", "published at:"))
    ]
    assert shown == [
        "consumer:        award",
        "id:              1",
        "key:             a1",
        "reason:          exhausted",
        "attempts:        6",
        "error:           KeyError: 'user'",
        "topic:           order.paid",
        "message id:      m-1",
        "first failed at: 2026-01-01T10:00:00Z",
        "last failed at:  -",
        "body:            18 bytes",
        '{"order_id": "a1"}',
    ]


def test_show_prints_the_traceback(line):
    """The last traceback stands below the cause, with credentials masked."""
    trace = 'Traceback (most recent call last):\n  File "handlers.py", line 3, in award\nKeyError: 1'
    line.publish_dead_letters(b"{}", REASON="exhausted", TRACEBACK=f"{trace} password=geheim")
    text = line.run("dead-letters", "show", "award", "4").stdout
    assert f"traceback:\n{trace}" in text
    assert "geheim" not in text
    assert json.loads(line.run("dead-letters", "show", "award", "4", "--json").stdout)["traceback"] in text


def test_show_gives_binary_bodies_in_base64(line):
    """Original bytes are never lost in a terminal."""
    result = line.run("dead-letters", "show", "award", "3", "--json")
    assert json.loads(result.stdout)["body_base64"] == "//4="


def test_show_of_a_missing_one_fails(line):
    """Exit code 1 and a sentence."""
    result = line.run("dead-letters", "show", "award", "99")
    assert (result.exit_code, result.stderr) == (1, "consumer award has no dead letter 99\n")


def test_replay_sends_them_again_with_fresh_attempts(line):
    """A replayed message is received again, by its own consumer alone, and is no dead letter any more."""
    result = line.run("dead-letters", "replay", "award", "--key", "a1")
    assert (result.exit_code, result.stdout) == (0, "replayed 1 dead letter of award\n")
    assert [row["id"] for row in listed(line)] == ["2", "3"]
    (message,) = line.received(1)
    assert (message.body, message.attempt) == (b'{"order_id": "a1"}', 1)


def test_replay_of_all_consumers_as_json(line):
    """Each consumer's count is one object."""
    result = line.run("dead-letters", "replay", "--all", "--json")
    assert [json.loads(row) for row in result.stdout.splitlines()] == [
        {"consumer": "award", "replayed": 3},
        {"consumer": "mail", "replayed": 0},
    ]


@pytest.mark.parametrize("action", ["replay", "purge"])
@pytest.mark.parametrize("arguments", [(), ("--all", "--key", "a1")])
def test_acting_needs_a_clear_choice(line, action, arguments):
    """Neither nothing nor everything-but-some is guessed."""
    result = line.run("dead-letters", action, "award", *arguments)
    assert result.exit_code == 2
    assert "say which: --id, --key or --reason; or --all" in result.stderr
    assert len(listed(line)) == 3


def test_purge_asks_first(line):
    """Without a yes nothing is removed."""
    result = line.run("dead-letters", "purge", "award", "--all", stdin="n\n")
    assert result.exit_code == INTERRUPTED
    assert "Permanently delete these dead letters of award? [y/N]" in result.stderr
    assert len(listed(line)) == 3


def test_purge_removes_those_chosen(line):
    """With --yes what was chosen is gone, the rest stays."""
    result = line.run("dead-letters", "purge", "award", "--reason", "rejected", "--yes")
    assert (result.exit_code, result.stdout) == (0, "purged 1 dead letter of award\n")
    assert [row["id"] for row in listed(line)] == ["1", "3"]


def test_limits_bound_what_is_done(line):
    """The oldest go first."""
    line.run("dead-letters", "purge", "award", "--all", "--yes", "--limit", "2")
    assert [row["id"] for row in listed(line)] == ["3"]


def test_hostile_reasons_cannot_write_to_the_terminal(tmp_path):
    """ANSI codes and line ends in what a message brought are escaped, markup is no markup."""
    line = CommandLine(tmp_path)
    assert line.run("tables", "create").exit_code == 0
    line.publish_dead_letters(
        b"{}\x1b[2J\nx", KEY="\x1b[2Jk\n[red]", REASON="x\ny", ERROR_TEXT="\x1b]0;owned\x07\u202e"
    )
    for arguments in (("list",), ("show", "award", "1")):
        result = line.run("dead-letters", *arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout.replace("\n", "").isprintable()
    assert "\\x1b[2Jk\\n[red]" in line.run("dead-letters", "list").stdout


def test_credentials_in_an_error_are_masked(tmp_path):
    """A handler's error that quotes a URL shows no password, in a table or in JSON."""
    line = CommandLine(tmp_path)
    assert line.run("tables", "create").exit_code == 0
    line.publish_dead_letters(
        b"{}", ERROR_CLASS="OSError", ERROR_TEXT="OSError: no answer from amqp://u:canary-7Q9z@h"
    )
    for arguments in (
        ("list",),
        ("list", "--json"),
        ("show", "award", "1"),
        ("show", "award", "1", "--json"),
    ):
        shown = line.run("dead-letters", *arguments).stdout
        assert "OSError: no answer from amqp://u:***@h" in shown
        assert "canary-7Q9z" not in shown
