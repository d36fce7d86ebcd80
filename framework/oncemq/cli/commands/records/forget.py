"""The command `forget`: lets messages that have taken effect run again when they come again."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.moments import moment
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, confirm, counted, json_option, limit_option, warn
from oncemq.config import load
from oncemq.errors import LedgerError
from oncemq.ledger.records.forgetting import BATCH, Choice
from oncemq.operate.auditing import Operator
from oncemq.operate.brokers import chosen_consumers, one_each
from oncemq.operate.forgetting import Forgetting

COLUMNS = {
    "consumer": "consumer",
    "where": "where",
    "key": "key",
    "identity": "identity",
    "value": "value",
    "at": "at",
    "busy": "stays, because",
}


@click.command("forget", short_help="Let messages that have taken effect run again.")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--consumer", help="Only what this consumer applied. Needed without a KEY.")
@click.option(
    "--since", callback=moment, metavar="TIME", help="Only what was applied then or later: a time or an age."
)
@click.option(
    "--until", callback=moment, metavar="TIME", help="Only what was applied before: a time or an age."
)
@click.option("--preview", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", hidden=True, default="", help="The former name of --why.")
@signed
@limit_option("shown of each consumer and table")
@json_option
@app_option
def forget(
    keys: tuple[str, ...],
    consumer: str | None,
    since: datetime | None,
    until: datetime | None,
    reason: str,
    limit: int,
    files: Sequence[Path],
    *,
    operator: Operator,
    preview: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Remove the records by which messages count as applied, so that they run when they come again.

    They come again by a reset of offsets, a replay, or when they are published again; not by themselves.

    Select by business keys, or by the time of application with --consumer and --since or --until. KEY alone also removes
    what the ledger knows of the whole key: its state, and its number in a sequence. Your own tables are not touched:
    what the handler did before, it does once more.

    First it shows what would be removed, then it asks. Each removed record leaves a line in the key's history. Messages
    that are running, or whose outcome is unknown, are refused; `tiered` needs the app to be stopped.
    """
    _insist_on_choice(keys, consumer, since, until)
    plan = load(files).plan
    consumers = one_each(chosen_consumers(plan, consumer))
    if plan.engine is not None:
        opened(plan)
    asked = [Forgetting(plan, target, Choice(keys, since, until)) for target in consumers]
    output = Output(as_json=as_json)
    rows = [asdict(known) for each in asked for known in islice(each.look(limit), 6 * limit)]
    output.rows(COLUMNS, rows, none="nothing is known that could be forgotten")
    for note in (note for each in asked for note in each.notes):
        warn(note)
    if refusal := next(filter(None, (each.refusal() for each in asked)), ""):
        raise LedgerError(refusal)
    if any(row["busy"] for row in rows):
        warn("nothing was removed: see the last column")
        return FAILED
    if preview or not rows:
        return OK
    if not yes:
        confirm(
            f"Let these messages{' and all others of that time' if not keys else ''} take effect once more?"
        )
    for target, each in zip(consumers, asked, strict=True):
        count = each.remove(replace(operator, why=operator.why or reason))
        output.record({"consumer": target.name, "forgotten": count})
        output.line(f"removed {counted(count, 'record')} of {target.name}")
    return OK


def _insist_on_choice(
    keys: Sequence[str], consumer: str | None, since: datetime | None, until: datetime | None
) -> None:
    if not keys and ((since is None and until is None) or consumer is None):
        raise click.UsageError("say which: KEY, or --consumer with --since or --until")
    if len(keys) > BATCH:
        raise click.UsageError(f"name at most {BATCH} keys at once")
    if since is not None and until is not None and until <= since:
        raise click.UsageError("--until is not later than --since")
