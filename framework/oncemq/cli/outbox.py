"""The commands `outbox list / drop`: looking after published messages that their broker refuses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli import choosing
from oncemq.cli.files import app_option
from oncemq.cli.opened import opened_ledger
from oncemq.cli.output import Output, counted, json_option, limit_option
from oncemq.ledger import outbox_refused
from oncemq.ledger.outbox_refused import Chosen
from oncemq.run.plan import AppPlan

COLUMNS = {
    "topic": "topic",
    "message_id": "id",
    "key": "key",
    "consumer": "published by",
    "created_at": "since",
    "attempts": "refused",
    "due_at": "next try",
    "error": "error",
}


filters = choosing.filters("this one", "of this business key")


@click.group("outbox", short_help="List or drop published messages that their broker refuses.")
def outbox() -> None:
    """Look after messages that handlers published and their broker refuses.

    Each is tried again, with growing pauses, for ever, and later messages of its topic and key wait for it. What its
    broker has not refused is sent by the running app, and is not shown here; `oncemq inspect KEY` shows all of a key.
    """


@outbox.command("list", short_help="List refused messages, oldest first.")
@click.argument("topic", required=False)
@filters
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
    as_json: bool,
) -> None:
    """List what was published to TOPIC, or to any topic, and is refused."""
    plan, chosen = opened_ledger(files, "has no outbox"), Chosen(topic, frozenset(ids), key)
    rows: list[dict[str, Any]] = []
    for engine in plan.engines:
        with engine.connect() as connection:
            rows += outbox_refused.listed(connection, plan.name, chosen, limit)
    shown = [{**row, "consumer": str(row["consumer"]).removeprefix(f"{plan.name}.")} for row in rows]
    Output(as_json=as_json).rows(COLUMNS, shown, none="no refused messages")


@outbox.command("drop", short_help="Give refused messages up for ever.")
@click.argument("topic", required=False)
@filters
@choosing.deciding
@json_option
@app_option
def drop_refused(
    topic: str | None,
    ids: Sequence[str],
    key: str | None,
    files: Sequence[Path],
    *,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Give up what was published to TOPIC (to any topic if none is named) and is refused: nobody will get it.

    Say which with --id, --key, or --all. What the handler did besides publishing stays; what waits behind a dropped
    message is sent.
    """
    chosen = Chosen(topic, frozenset(ids), key)
    choosing.insist_on_choice(ids, key, everything=everything)
    plan = opened_ledger(files, "has no outbox")
    if not yes:
        click.confirm(f"Give up these messages to {topic or 'all topics'} for ever?", abort=True, err=True)
    dropped, left = _dropped(plan, chosen)
    output = Output(as_json=as_json)
    output.record({"dropped": dropped, "being_sent": left})
    output.line(f"dropped {counted(dropped, 'message')}")
    if left:
        output.line(f"{counted(left, 'message')} stayed: the running app is trying again just now")


def _dropped(plan: AppPlan, chosen: Chosen) -> tuple[int, int]:
    """Return how many were dropped, and how many were not."""
    dropped = left = 0
    for engine in plan.engines:
        with engine.begin() as connection:
            dropped += outbox_refused.drop(connection, plan.name, chosen, plan.clock.now())
            left += outbox_refused.count(connection, plan.name, chosen)
    return dropped, left
