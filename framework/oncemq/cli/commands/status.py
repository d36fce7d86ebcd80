"""The command `status`: shows each consumer's backlog, failures and processes."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from oncemq.cli.exit_codes import BROKER, FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.output import Output, counted, json_option, shown, warn
from oncemq.config import load
from oncemq.operate import overview
from oncemq.operate.overview import Overview

COLUMNS = {
    "consumer": "consumer",
    "topic": "topic",
    "waiting": "waiting",
    "unacknowledged": "unacked",
    "retries": "retries",
    "parked": "parked",
    "next_due": "next due",
    "dead_letters": "dead letters",
    "last_applied": "last applied",
}


@click.command("status", short_help="Show what waits, what failed and which processes run.")
@json_option
@app_option
def status(files: Sequence[Path], *, as_json: bool) -> int:
    """Show each consumer's messages at the broker, parked messages, dead letters and when it last applied a message.

    `waiting` messages are ready to be delivered, `unacked` ones were delivered and are not settled, `retries` wait for their
    next attempt, `parked` ones for their turn; `next due` is the time of the first retry or parked message at the latest.
    A figure that the broker does not tell is a dash (null in --json). Below that: messages that wait in the outbox, the
    processes of the app, and which consumers are paused by whom. It asks the brokers and the database; no process
    of the app need run.

    Exit code 0: no operator is needed. 1: dead letters, refused messages, a paused consumer, or messages wait and no process
    runs. 4 or 5: a broker or the database cannot be reached; the others' data is shown.
    """
    plan = load(files).plan
    if plan.engine is not None:
        opened(plan)
    found = overview.read(plan, tell=warn)
    complaints = found.complaints()
    _print(Output(as_json=as_json), found, complaints)
    if found.problems:
        return BROKER
    return FAILED if complaints else OK


def _print(output: Output, found: Overview, complaints: list[str]) -> None:
    hidden = ("rate", "outcomes", "duplicate_ratio")  # `oncemq top` counts them
    output.record(
        {
            "consumers": [
                {
                    name: [asdict(pause) for pause in value] if name == "paused" else value
                    for name, value in row.items()
                    if name not in hidden
                }
                for row in found.consumers
            ],
            "outbox": found.outbox,
            "processes": found.processes,
            "problems": found.problems,
            "complaints": complaints,
            "notes": found.notes,
        }
    )
    if not output.as_json:
        output.rows(COLUMNS, found.consumers, none="there are no consumers")
        output.line()
        if found.outbox:
            waits, oldest = found.outbox["messages"], found.outbox["oldest"]
            output.line(
                f"outbox: {counted(waits, 'message')}" + (f", the oldest of {shown(oldest)}" if waits else "")
            )
            if found.outbox["delayed"]:
                output.line(
                    f"published for later: {counted(found.outbox['delayed'], 'message')}, "
                    f"the next at {shown(found.outbox['next_due'])}"
                )
            places = ", ".join(f"{process['pid']} on {process['host']}" for process in found.alive)
            output.line(f"processes: {len(found.alive)}" + (f" ({places})" if places else ""))
        for note in found.notes:
            output.line(note)
    for text in (*found.problems, *complaints):
        warn(text)
