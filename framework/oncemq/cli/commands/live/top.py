"""The command `top`: the overview of an app, live in a terminal, or once for scripts."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from oncemq.cli.exit_codes import BROKER, FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.output import Output, json_option, shown
from oncemq.common.redaction import escape
from oncemq.config import load
from oncemq.operate.overview import Overview, record, state
from oncemq.operate.overview_source import OverviewSource

COLUMNS = {
    "consumer": "consumer",
    "state": "state",
    "rate": "applied/s",
    "duplicate": "duplicates",
    "duplicate_ratio": "ratio",
    "stale": "stale",
    "retry": "failed",
    "waiting": "waiting",
    "unacknowledged": "unacked",
    "retries": "retries",
    "parked": "parked",
    "oldest_parked": "oldest parked",
    "dead_letters": "dead letters",
    "last_applied": "last applied",
}


@click.command("top", short_help="Watch consumers, rates and backlogs live.")
@click.option("--once", is_flag=True, help="Print the state once, and end.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@json_option
@app_option
def top(files: Sequence[Path], *, once: bool, every: float, as_json: bool) -> int:
    """Show what every consumer does, live, until Ctrl-C.

    `applied/s`, duplicates with their ratio, stale and failed tries are of the last minute, of all processes, as the ledger has them; what waits is asked of
    the brokers; dead letters are counted every 30 seconds. No process of the app need run. --json prints one object per look.

    Exit code with --once: 0, 1 when an operator should look, 4 if a server cannot be reached.
    """
    if not (once or as_json or sys.stdout.isatty()):
        raise click.UsageError("there is no terminal: add --once, or --json for one object per look")
    output = Output(as_json=as_json)
    with OverviewSource(lambda: load(files).plan) as source:
        if not once and not as_json:
            with suppress(KeyboardInterrupt):  # the way to end it
                _watch(source, every)
            return OK
        while True:
            found = source.read()
            _print(output, found)
            if once:
                return BROKER if found.problems else FAILED if found.complaints() else OK
            sys.stdout.flush()
            time.sleep(every)


def _watch(source: OverviewSource, every: float) -> None:
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(picture(source.read()), refresh=True)
            time.sleep(every)


def _print(output: Output, found: Overview) -> None:
    output.record(record(found))
    if output.as_json:
        return
    output.rows(COLUMNS, [_cells(row, found) for row in found.consumers], none="there are no consumers")
    for line in lines(found):
        output.line(line)


def picture(found: Overview) -> Group:
    """Return the overview for a terminal; nothing in it is taken for markup."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name, heading in COLUMNS.items():
        table.add_column(heading, no_wrap=name == "consumer", overflow="fold")
    for row in found.consumers:
        cells = _cells(row, found)
        style = "yellow" if cells["state"] != "running" else ""
        table.add_row(*(Text(_short(cells.get(name))) for name in COLUMNS), style=style)
    title = Text(f"oncemq top   {found.at:%H:%M:%S} UTC   Ctrl-C ends", style="bold")
    return Group(title, Text(), table, Text(), *(Text(escape(line)) for line in lines(found)))


def lines(found: Overview) -> list[str]:
    """Return what there is to say besides the consumers."""
    said = []
    if found.outbox:
        waits, oldest = found.outbox["messages"], found.outbox["oldest"]
        said.append(f"outbox: {waits:,} messages" + (f", the oldest of {shown(oldest)}" if waits else ""))
        places = ", ".join(f"{process['pid']} on {process['host']}" for process in found.alive)
        silent = len(found.processes) - len(found.alive)
        said.append(
            f"processes: {len(found.alive)}"
            + (f" ({places})" if places else "")
            + (f", and {silent} without a heartbeat" if silent else "")
        )
    if found.redis:
        said.append(f"Redis: {found.redis}")
    return [*said, *found.notes, *(f"! {text}" for text in (*found.problems, *found.complaints()))]


def _cells(row: dict[str, Any], found: Overview) -> dict[str, Any]:
    outcomes = row["outcomes"]
    ratio = row["duplicate_ratio"]
    return {
        **row,
        "state": state(row, found),
        "duplicate": outcomes.get("duplicate", 0),
        "stale": outcomes.get("stale", 0),
        "retry": outcomes.get("retry", 0),
        "duplicate_ratio": None if ratio is None else f"{100 * ratio:.1f} %",
    }


def _short(value: Any) -> str:
    return f"{value:%H:%M:%S}" if isinstance(value, datetime) else shown(value)
