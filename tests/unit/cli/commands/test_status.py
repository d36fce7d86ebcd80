"""The command `status`: what waits, what failed, which processes run, and an exit code for scripts."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from oncemq import App
from oncemq.cli.exit_codes import BROKER
from oncemq.cli.main import oncemq
from support.apps.paying import app

__all__ = ["app"]


def status(*options: str) -> tuple[int, Any, Result]:
    """Return the exit code and what `status --json` prints."""
    done = CliRunner().invoke(oncemq, ["status", "--json", *options], standalone_mode=False)
    return done.return_value, json.loads(done.stdout), done


def test_nothing_waits(app: App) -> None:
    """An app at rest needs no person, also while no process runs."""
    code, found, _ = status()
    assert code == 0
    assert found["consumers"] == [
        {
            "consumer": "pay",
            "topic": "orders",
            "waiting": 0,
            "unacknowledged": 0,
            "retries": 0,
            "parked": 0,
            "next_due": None,
            "oldest_parked": None,
            "dead_letters": 0,
            "last_applied": None,
            "paused": [],
        }
    ]
    assert (found["outbox"], found["processes"]) == (
        {
            "messages": 0,
            "oldest": None,
            "refused": 0,
            "dead_letters": 0,
            "delayed": 0,
            "next_due": None,
        },
        [],
    )


def test_messages_without_a_process_need_a_person(app: App) -> None:
    """What waits while nothing consumes is said, with exit code 1."""
    app.publish("orders", {"id": 1})
    app.stop()
    code, found, _ = status()
    assert code == 1
    assert found["consumers"][0]["waiting"] == 1
    assert found["complaints"] == ["messages wait for pay, and no process of the app runs: `oncemq run`"]


def test_applied_and_dead_messages_are_counted(app: App) -> None:
    """The latest effect has its time, and dead letters are a complaint."""
    app.publish("orders", {"id": 1})
    app.publish("orders", {"id": 2, "bad": True})
    app.stop()
    app.run(until_idle="0.3s")
    code, found, _ = status()
    (row,) = found["consumers"]
    assert code == 1
    assert (row["waiting"], row["dead_letters"]) == (0, 1)
    assert row["last_applied"]
    assert found["complaints"] == ["dead letters of pay: `oncemq dead-letters list`"]


def test_a_running_process_is_listed(app: App) -> None:
    """A process that lives is shown by host and number."""
    app.start()
    try:
        _, found, _ = status()
    finally:
        app.stop()
    (process,) = found["processes"]
    assert process["alive"]


def test_people_read_a_table(app: App) -> None:
    """Without --json there is a line for each consumer, one for the outbox, one for the processes."""
    done = CliRunner().invoke(oncemq, ["status"], standalone_mode=False)
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "CONSUMER",
        "TOPIC",
        "WAITING",
        "UNACKED",
        "RETRIES",
        "PARKED",
        "NEXT",
        "DUE",
        "DEAD",
        "LETTERS",
        "LAST",
        "APPLIED",
    ]
    assert lines[1].split()[:2] == ["pay", "orders"]
    assert "outbox: 0 messages" in lines
    assert "processes: 0" in lines


def test_a_broker_that_is_away_hides_nothing_else(app: App, tmp_path: Path) -> None:
    """What the ledger knows is shown all the same, with the exit code of a broker that cannot be reached."""
    over = tmp_path / "away.yaml"
    over.write_text("brokers: {main: {url: 'amqp://127.0.0.1:1/'}}\n")
    code, found, _ = status("-f", "app.yaml", "-f", str(over))
    assert code == BROKER
    assert found["consumers"][0]["parked"] == 0
    assert found["consumers"][0]["waiting"] is None
    assert found["problems"][0].startswith("broker main: ")
