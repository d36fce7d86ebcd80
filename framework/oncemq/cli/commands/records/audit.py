"""The command `audit`: lists the changes that operators made."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from oncemq.cli.files import app_option
from oncemq.cli.moments import moment
from oncemq.cli.open_app import opened_ledger
from oncemq.cli.output import Output, json_option, limit_option
from oncemq.operate import auditing
from oncemq.operate.brokers import chosen_consumers

COLUMNS = {
    "at": "at",
    "who": "who",
    "action": "action",
    "consumer": "consumer",
    "key": "key",
    "target": "what",
    "affected": "count",
    "state": "state",
    "why": "why",
}


@click.command("audit", short_help="List changes that operators made.")
@click.argument("consumer", required=False)
@click.option("--key", help="Only those about this business key.")
@click.option("--since", callback=moment, metavar="TIME", help="Only those since then: a time or an age.")
@limit_option("changes")
@json_option
@app_option
def audit(
    consumer: str | None,
    key: str | None,
    since: datetime | None,
    limit: int,
    files: Sequence[Path],
    *,
    as_json: bool,
) -> None:
    """List the changes that operators made by commands or by `app.dead_letters`, the latest first.

    Of CONSUMER, or of all consumers and of the app itself: what was replayed, purged, dropped, retried, paused, forgotten or taken,
    who did it (--by), why (--why), and when, by the database's clock. State `requested` without an end: the command was
    killed, or is still at it, and may have changed a part. Changes are kept as long as the consumer's records (`keep`).
    """
    plan = opened_ledger(files, "keeps no audit trail")
    scope = None if consumer is None else chosen_consumers(plan, consumer)[0].scope
    names = {each.scope: each.called for each in plan.consumers}
    found = auditing.changes(plan, limit, consumer=scope, key=key, since=since)
    rows = [{**asdict(change), "consumer": names.get(change.consumer, "")} for change in found]
    Output(as_json=as_json).rows(COLUMNS, rows, none="no changes")
