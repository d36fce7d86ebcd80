"""The commands `outbox list / show / retry / drop`: manage published messages that their broker refuses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli import row_choice as choosing
from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened_ledger
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, confirm, counted, json_option, limit_option, shown, warn
from oncemq.ledger.messages import delayed as for_later
from oncemq.ledger.messages import outbox_refused
from oncemq.ledger.messages.outbox_refused import Chosen
from oncemq.operate import outbox as operate
from oncemq.operate.auditing import Operator, Trail

COLUMNS = {
    "state": "state",
    "topic": "topic",
    "message_id": "id",
    "key": "key",
    "consumer": "published by",
    "created_at": "since",
    "attempts": "refused",
    "due_at": "next try",
    "error": "error",
}


LATER_COLUMNS = {
    "due_at": "due at",
    "topic": "topic",
    "message_id": "id",
    "key": "key",
    "consumer": "published by",
    "created_at": "since",
}

delayed_option = click.option(
    "--delayed", is_flag=True, help="Those that were published for later, and have not become due."
)

filters = choosing.filters("this one", "of this business key")


@click.group(
    "outbox", short_help="List, show, retry or drop published messages: refused ones, and those for later."
)
def outbox() -> None:
    """Manage messages that handlers published and their broker refuses.

    A message in the state `waits` is tried again, with growing pauses, without limit, and later messages of its topic and key
    wait for it. A `dead letter` had no place at its broker, and its topic says `unroutable: dead_letter`: it is kept until
    you retry or drop it, and later messages of its key are sent. What no broker has refused is sent by the running app
    and is not shown here; `oncemq inspect KEY` shows all of a key. Messages that were published for later are listed
    and dropped with --delayed.
    """


@outbox.command("list", short_help="List refused messages, oldest first; or what was published for later.")
@click.argument("topic", required=False)
@filters
@delayed_option
@limit_option("from each database")
@json_option
@app_option
def list_refused(
    topic: str | None,
    ids: Sequence[str],
    key: str | None,
    limit: int,
    files: Sequence[Path],
    *,
    delayed: bool,
    as_json: bool,
) -> None:
    """List the refused messages of TOPIC, or of all topics; with --delayed what is sent later, the next one first."""
    plan, chosen = opened_ledger(files, "has no outbox"), Chosen(topic, frozenset(ids), key)
    rows: list[dict[str, Any]] = []
    read = for_later.listed if delayed else outbox_refused.listed
    for engine in plan.engines:
        with engine.connect() as connection:
            rows += read(connection, plan.name, chosen, limit)
    shown = [{**row, "consumer": str(row["consumer"]).removeprefix(f"{plan.name}.")} for row in rows]
    columns = LATER_COLUMNS if delayed else COLUMNS
    none = "nothing was published for later" if delayed else "no refused messages"
    Output(as_json=as_json).rows(columns, shown, none=none)


@outbox.command("show", short_help="Show a refused message with its headers and body.")
@click.argument("message_id", metavar="ID")
@json_option
@app_option
def show_refused(message_id: str, files: Sequence[Path], *, as_json: bool) -> int:
    """Show the refused message ID (as `oncemq outbox list` shows it) with its error, headers and body.

    Exit code 1: there is no such message.
    """
    plan, output = opened_ledger(files, "has no outbox"), Output(as_json=as_json)
    found: list[dict[str, Any]] = []
    for engine in plan.engines:
        with engine.connect() as connection:
            found += outbox_refused.whole(connection, plan.name, message_id)
    for row in found:
        body = bytes(row["body"]).decode(errors="backslashreplace")
        consumer = str(row["consumer"]).removeprefix(f"{plan.name}.")
        row |= {"body": body, "consumer": consumer}
        output.record(row)
        for name, title in COLUMNS.items():
            output.line(f"{title + ':':<14}{shown(row[name])}")
        for name, text in row["headers"].items():
            output.line(f"{'header:':<14}{name}: {text}")
        output.line("body:")
        output.block(body)
    if not found:
        warn(f"there is no refused message {message_id}: `oncemq outbox list` shows those that there are")
    return OK if found else FAILED


@outbox.command("retry", short_help="Have refused messages sent again now.")
@click.argument("topic", required=False)
@filters
@choosing.every
@signed
@json_option
@app_option
def retry_refused(
    topic: str | None,
    ids: Sequence[str],
    key: str | None,
    files: Sequence[Path],
    *,
    operator: Operator,
    everything: bool,
    as_json: bool,
) -> None:
    """Retry the refused messages of TOPIC (of all topics if none is named) now.

    Select with --id, --key, or --all. Any running worker of the app sends them within some seconds, or `oncemq relay`.
    A dead letter is sent although later messages of its key may have been sent before it.
    """
    choosing.insist_on_choice(ids, key, everything=everything)
    plan, chosen = opened_ledger(files, "has no outbox"), Chosen(topic, frozenset(ids), key)
    count = operate.retry(plan, chosen, Trail(plan, operator, "outbox retry"))
    output = Output(as_json=as_json)
    output.record({"due": count})
    output.line(f"{counted(count, 'message')} will be sent again by the running app, or by `oncemq relay`")


@outbox.command("drop", short_help="Drop refused messages, or those for later, permanently.")
@click.argument("topic", required=False)
@filters
@delayed_option
@choosing.deciding
@signed
@json_option
@app_option
def drop_refused(
    topic: str | None,
    ids: Sequence[str],
    key: str | None,
    files: Sequence[Path],
    *,
    operator: Operator,
    everything: bool,
    delayed: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop the refused messages of TOPIC (of all topics if none is named): no consumer will get them.

    With --delayed it drops those that were published for later instead, before they become due.

    Select with --id, --key, or --all. Other effects of the handler stay; messages that wait behind a dropped
    message are sent.
    """
    chosen = Chosen(topic, frozenset(ids), key)
    choosing.insist_on_choice(ids, key, everything=everything)
    plan = opened_ledger(files, "has no outbox")
    if not yes:
        confirm(f"Permanently drop these messages to {topic or 'all topics'}?")
    trail = Trail(plan, operator, "outbox drop --delayed" if delayed else "outbox drop")
    dropped, left = (operate.cancel(plan, chosen, trail), 0) if delayed else operate.drop(plan, chosen, trail)
    output = Output(as_json=as_json)
    output.record({"dropped": dropped, "being_sent": left})
    output.line(f"dropped {counted(dropped, 'message')}")
    if left:
        output.line(f"{counted(left, 'message')} stayed: the running app is trying again just now")
