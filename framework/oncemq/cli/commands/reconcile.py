"""The command `reconcile`: verifies messages with an unknown outcome."""

from collections.abc import Sequence
from pathlib import Path

import click

from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, json_option
from oncemq.config import load
from oncemq.errors import ConfigError
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.brokers import chosen_consumers, one_each
from oncemq.operate.reconciling import KNOWN, reconciled

COLUMNS = {
    "consumer": "consumer",
    "key": "key",
    "identity": "identity",
    "answer": "answer",
    "reason": "reason",
}


@click.command("reconcile", short_help="Find out about effects whose outcome is unknown.")
@click.argument("consumer", required=False)
@click.option("--identity", help="Only about the message with this identity; `oncemq inspect KEY` shows it.")
@click.option(
    "--assume",
    type=click.Choice(list(KNOWN)),
    help="Do not ask `verify`: you have checked it yourself. Needs CONSUMER and --identity.",
)
@signed
@json_option
@app_option
def reconcile(
    consumer: str | None,
    identity: str | None,
    assume: str | None,
    files: Sequence[Path],
    *,
    operator: Operator,
    as_json: bool,
) -> None:
    """Verify every message of CONSUMER (of all if none is named) whose handler failed or was interrupted.

    A running app does this by itself, for redelivered messages and in the background; messages that remained
    unknown there are verified again at once.

    After `done` a redelivered message is a duplicate; after `not-done` it runs. A message that has become
    a dead letter is redelivered by `oncemq dead-letters replay`.
    """
    if assume is not None and (consumer is None or identity is None):
        raise click.UsageError("--assume is about one message: name CONSUMER and --identity")
    plan = load(files).plan
    consumers = one_each(chosen_consumers(plan, consumer))
    if plan.engine is None:
        raise ConfigError(["the app has no database, so there is nothing to reconcile"])
    opened(plan)
    answer = KNOWN[assume] if assume is not None else None
    rows = reconciled(plan, consumers, Trail(plan, operator, "reconcile"), identity=identity, answer=answer)
    Output(as_json=as_json).rows(COLUMNS, rows, none="nothing is in doubt")
