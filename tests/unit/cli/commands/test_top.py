"""The command `top`: rates and outcomes as the ledger has them, backlogs as the brokers tell them, pauses, and servers that are away."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from oncemq import App
from oncemq.cli.commands.live.top import picture
from oncemq.cli.exit_codes import BROKER
from oncemq.operate.overview import Overview
from support.apps.command_line import run_program
from support.apps.paying import app

__all__ = ["app"]


def look(*options: str) -> tuple[int, Any]:
    """Return the exit code and the object that `top --once --json` prints."""
    done = run_program("top", "--once", "--json", *options)
    return done.exit_code, json.loads(done.stdout)


def test_a_script_reads_what_became_of_the_last_minutes_messages(app: App) -> None:
    """Three applied, one of them sent three times, one dead: outcomes, ratio, rate and dead letters."""
    for order in ({"id": 1}, {"id": 2}, {"id": 3}, {"id": 1}, {"id": 1}, {"id": 4, "bad": True}):
        app.publish("orders", order)
    app.stop()
    app.run(until_idle="0.3s")
    code, found = look()
    (row,) = found["consumers"]
    assert (code, row["state"]) == (1, "no process")
    assert (row["outcomes"]["applied"], row["outcomes"]["duplicate"]) == (3, 2)
    assert (row["duplicate_ratio"], row["rate"]) == (0.4, 0.05)
    assert (row["waiting"], row["dead_letters"]) == (0, 1)
    assert found["complaints"] == ["dead letters of pay: `oncemq dead-letters list`"]


def test_a_paused_consumer_is_shown_with_who_and_why(app: App) -> None:
    """Its state is `paused`, which is worth a look by an operator."""
    assert run_program("pause", "pay", "--by", "alice", "--why", "stocktaking").exit_code == 0
    code, found = look()
    (row,) = found["consumers"]
    assert (code, row["state"], row["rate"]) == (1, "paused", 0.0)
    assert [(each["who"], each["why"]) for each in row["paused"]] == [("alice", "stocktaking")]
    assert "paused" in run_program("top", "--once").stdout


def test_a_broker_that_is_away_hides_nothing_else(app: App, tmp_path: Path) -> None:
    """The ledger's figures are there, with the exit code of a server that cannot be reached."""
    over = tmp_path / "away.yaml"
    over.write_text("brokers: {main: {url: 'amqp://127.0.0.1:1/'}}\n")
    code, found = look("-f", "app.yaml", "-f", str(over))
    assert code == BROKER
    assert (found["consumers"][0]["parked"], found["consumers"][0]["waiting"]) == (0, None)
    assert found["problems"][0].startswith("broker main: ")


def test_without_a_terminal_it_says_what_to_add(app: App) -> None:
    """A pipe cannot be updated in place."""
    done = run_program("top")
    assert done.exit_code == 2
    assert "--once" in done.stderr


def test_a_terminal_shows_hostile_text_as_text() -> None:
    """Neither control characters nor rich's markup in a broker's words have an effect."""
    found = Overview(datetime(2026, 1, 2, tzinfo=UTC), [], problems=["[red]x[/red] \x1b[2J"])
    console = Console(width=120, force_terminal=True)
    with console.capture() as captured:
        console.print(picture(found))
    assert "[red]x[/red]" in captured.get()
    assert "\x1b[2J" not in captured.get()
