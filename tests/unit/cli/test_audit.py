"""The audit trail: what each command that changes something leaves in it, and what `oncemq audit` and `inspect` show."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from oncemq import App
from oncemq.cli.exit_codes import DATABASE
from oncemq.ledger.database.server_clock import substitute_clock
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import Claim
from oncemq.ledger.records import audit
from oncemq.ledger.records.audit import Change
from oncemq.message.envelope import OutgoingMessage
from oncemq.operate.letters import Letters
from oncemq.testing.fake_clock import FakeClock
from oncemq.upkeep.purging import purge_tasks
from support.apps.command_line import CommandLine

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
SIGNED = ("--by", "alice", "--why", "ticket 7")


@pytest.fixture
def line(tmp_path: Path, database_url: str) -> CommandLine:
    """Return an app on each kind of database, with three dead letters of award, two of them of one key."""
    line = CommandLine(tmp_path)
    line.app.write_text(line.app.read_text().replace(f"sqlite:///{tmp_path}/shop.db", database_url))
    line.create_tables()
    for key in ("a1", "a1", "b2"):
        line.publish_dead_letters(b'{"order_id": "x"}', KEY=key, REASON="rejected", ATTEMPT="1")
    return line


@pytest.fixture
def small(tmp_path: Path) -> CommandLine:
    """Return an app on SQLite, with one dead letter of award."""
    line = CommandLine(tmp_path)
    line.create_tables()
    line.publish_dead_letters(b'{"order_id": "x"}', KEY="a1", REASON="rejected", ATTEMPT="1")
    return line


@contextmanager
def ledger(line: CommandLine) -> Iterator[Engine]:
    """Lend the app's database."""
    with line.plan() as plan:
        assert plan.engine is not None
        yield plan.engine


def trail(line: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    """Return what `oncemq audit --json` prints, oldest first."""
    result = line.run("audit", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(row) for row in result.stdout.splitlines()][::-1]


def brief(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the fields of the rows that say what was changed."""
    return [
        tuple(row[name] for name in ("action", "consumer", "key", "target", "affected", "state"))
        for row in rows
    ]


def publish_refused(line: CommandLine) -> None:
    """Store a published message that its broker has refused: key `k`, id `m1`."""
    claim = Claim("loyalty", "me", NOW)
    with ledger(line) as engine, engine.begin() as connection:
        message = OutgoingMessage(b"{}", {}, "k", "m1")
        rows = outbox.add(connection, claim, "loyalty.award", [("notes", message)], NOW)
        outbox.refused(connection, claim, [row.id for row in rows], NOW, "BrokerRefused: no queue")


def test_a_replay_leaves_a_row_for_each_key_with_who_why_and_count(line: CommandLine) -> None:
    """`audit` lists them, `inspect` shows those of its key."""
    assert line.run("dead-letters", "replay", "award", "--reason", "rejected", *SIGNED).exit_code == 0
    rows = trail(line)
    assert sorted(brief(rows)) == [
        ("dead-letters replay", "award", "a1", "reason rejected", 2, "done"),
        ("dead-letters replay", "award", "b2", "reason rejected", 1, "done"),
    ]
    assert {(row["who"], row["why"]) for row in rows} == {("alice", "ticket 7")}
    (change,) = json.loads(line.run("inspect", "b2", "--json").stdout)["changes"]
    assert (change["who"], change["affected"], change["state"]) == ("alice", 1, "done")


@pytest.mark.parametrize("command", ["replay", "purge"])
def test_a_request_is_stored_before_the_broker_is_asked(
    small: CommandLine, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is killed there leaves `requested`."""
    seen = []

    def act(_letters: Letters, ids: Sequence[str]) -> int:
        seen.extend(trail(small))
        return len(ids)

    monkeypatch.setattr(Letters, command, act)
    options = ("--yes",) if command == "purge" else ()
    assert small.run("dead-letters", command, "--all", *options, *SIGNED).exit_code == 0
    assert brief(seen) == [(f"dead-letters {command}", "award", "a1", "all", None, "requested")]
    assert brief(trail(small)) == [(f"dead-letters {command}", "award", "a1", "all", 1, "done")]


def test_a_replay_that_raises_is_no_done_one(small: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row says `failed`, without a count."""

    def refuse(_letters: Letters, _ids: Sequence[str]) -> int:
        raise RuntimeError("no queue")

    monkeypatch.setattr(Letters, "replay", refuse)
    assert small.run("dead-letters", "replay", "--all").exit_code != 0
    assert brief(trail(small)) == [("dead-letters replay", "award", "a1", "all", None, "failed")]


def test_counts_of_keys_are_not_invented(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If fewer messages were replayed than were selected, it is not known which."""
    monkeypatch.setattr(Letters, "replay", lambda _letters, _ids: 2)
    assert line.run("dead-letters", "replay", "award", "--all").exit_code == 0
    assert {row["affected"] for row in trail(line)} == {None}


def test_what_was_dropped_stays_in_the_trail_of_its_key(line: CommandLine) -> None:
    """The message is gone; `inspect` says who dropped it, and why."""
    publish_refused(line)
    assert line.run("outbox", "drop", "--id", "m1", "--yes", *SIGNED).exit_code == 0
    assert brief(trail(line)) == [("outbox drop", "award", "k", "id m1", 1, "done")]
    found = json.loads(line.run("inspect", "k", "--json").stdout)
    assert found["outbox"] == []
    assert [(row["action"], row["who"], row["why"]) for row in found["changes"]] == [
        ("outbox drop", "alice", "ticket 7")
    ]


def test_a_retry_of_the_outbox_is_in_the_trail(line: CommandLine) -> None:
    """With the key of the message and the number of them."""
    publish_refused(line)
    assert line.run("outbox", "retry", "notes", "--all", *SIGNED).exit_code == 0
    assert brief(trail(line)) == [("outbox retry", "award", "k", "topic notes", 1, "done")]


def test_what_concerns_no_consumer_is_shown_too(small: CommandLine) -> None:
    """A message that a script published is of the app; `inspect KEY` shows who dropped it."""
    published = small.run("publish", "order.paid", "--delay", "1h", stdin='{"order_id": "k"}\n')
    assert published.exit_code == 0, published.output
    assert small.run("outbox", "drop", "--delayed", "--key", "k", "--yes", *SIGNED).exit_code == 0
    assert brief(trail(small)) == [("outbox drop --delayed", "", "k", "all", 1, "done")]
    (change,) = json.loads(small.run("inspect", "k", "--json").stdout)["changes"]
    assert (change["consumer"], change["who"]) == ("", "alice")


@pytest.mark.parametrize(
    ("command", "row"),
    [
        (("pause", "award"), ("pause", "award", "", "", None, "done")),
        (("purge", "award"), ("purge", "award", "", "older than 7d", 0, "done")),
        (
            ("tables", "restored"),
            ("tables restored", "", "", "done older marks and flags are no longer trusted", 1, "done"),
        ),
    ],
)
def test_commands_about_no_message_are_in_the_trail(
    small: CommandLine, command: tuple[str, ...], row: tuple[Any, ...]
) -> None:
    """With the consumer, or the app."""
    assert small.run(*command, *SIGNED).exit_code == 0
    (found,) = trail(small)
    assert (brief([found])[0][:3], found["who"], found["why"]) == (row[:3], "alice", "ticket 7")
    assert brief([found])[0][4:] == row[4:]


def test_the_trail_can_be_restricted(line: CommandLine) -> None:
    """By consumer, key, time and number; the latest changes are first."""
    for name in ("award", "mail", "award"):
        assert line.run("pause", name, "--why", name).exit_code == 0
    assert line.run("dead-letters", "purge", "award", "--key", "b2", "--yes").exit_code == 0
    assert [row["why"] for row in trail(line, "mail")] == ["mail"]
    assert [row["action"] for row in trail(line, "--key", "b2")] == ["dead-letters purge"]
    assert [row["action"] for row in trail(line, "--limit", "1")] == ["dead-letters purge"]
    assert len(trail(line, "--since", "1h")) == 4
    assert trail(line, "--since", "2100-01-01T00:00:00Z") == []


def test_the_person_is_the_login_name_and_host_unless_given(small: CommandLine) -> None:
    """A row without a person is none."""
    assert small.run("pause", "award").exit_code == 0
    assert "@" in trail(small)[0]["who"]


def test_without_a_database_one_sentence_says_that_there_is_no_trail(tmp_path: Path) -> None:
    """The dead letters are replayed all the same; `audit` itself is refused."""
    line = CommandLine(tmp_path)
    text = line.app.read_text().replace(f'database: {{url: "sqlite:///{tmp_path}/shop.db"}}\n', "")
    line.app.write_text(text.replace("[unique_key]", "[none]"))
    (tmp_path / "handlers.py").write_text("def award(order: dict) -> None:\n    pass\n")
    line.publish_dead_letters(b'{"order_id": "x"}', KEY="a1", REASON="rejected", ATTEMPT="1")
    result = line.run("dead-letters", "replay", "--all")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("this change is in no audit trail") == 1
    assert "keeps no audit trail" in line.run("audit").stderr


def test_a_ledger_without_the_table_is_told_to_be_upgraded_before_anything_is_changed(
    small: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No dead letter is replayed that would leave no trace."""
    with ledger(small) as engine, engine.begin() as connection:
        connection.exec_driver_sql("UPDATE oncemq_schema SET version = 1")
    monkeypatch.setattr(Letters, "replay", lambda *_: pytest.fail("replayed"))
    result = small.run("dead-letters", "replay", "--all")
    assert result.exit_code == DATABASE
    assert "oncemq tables upgrade" in result.stderr


def test_a_replay_by_the_app_in_python_is_in_the_trail(small: CommandLine) -> None:
    """With `by` and `why`, as from the command line."""
    app = App.from_yaml(small.app)
    assert app.dead_letters.replay("award", everything=True, by="web: bob", why="fixed") == 1
    (row,) = trail(small)
    assert (row["action"], row["who"], row["why"], row["affected"]) == (
        "dead-letters replay",
        "web: bob",
        "fixed",
        1,
    )


def test_the_time_of_a_change_is_the_databases(database_url: str, line: CommandLine) -> None:
    """A machine whose clock is wrong writes no wrong time."""
    clock = FakeClock()
    with ledger(line) as engine:
        substitute_clock(engine, clock)
        with engine.begin() as connection:
            audit.add(connection, [Change("loyalty", "loyalty.award", "pause", "alice", NOW)])
        with engine.connect() as connection:
            (found,) = audit.latest(connection, "loyalty", 10)
    assert found.at == clock.now()


def test_changes_of_the_app_are_purged_after_the_longest_time(line: CommandLine) -> None:
    """Those of a consumer go with its records, those of no consumer after the longest `keep` of the app."""
    clock = FakeClock()
    keep = {"loyalty.award": timedelta(days=2), "loyalty.mail": timedelta(days=9)}
    with ledger(line) as engine:
        substitute_clock(engine, clock)
        with engine.begin() as connection:
            for scope in ("loyalty", "loyalty.award"):
                audit.add(connection, [Change("loyalty", scope, "pause", "alice")])
        left = []
        for days in (3, 7):
            clock.advance(timedelta(days=days))
            for task in purge_tasks("loyalty", keep, clock):
                task.run(engine)
            with engine.connect() as connection:
                left.append([change.consumer for change in audit.latest(connection, "loyalty", 10)])
    assert left == [["loyalty"], []]
