"""The commands `pause` and `resume`: stop a consumer in all processes, and let it go on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened_ledger
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, json_option, warn
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.operate import pausing
from oncemq.operate.auditing import Operator
from oncemq.operate.brokers import chosen_consumers

_NO_LEDGER = "cannot be paused: its processes read pauses in the ledger"


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    by_all = click.option("--all", "everything", is_flag=True, help="Every consumer of the app.")
    return app_option(json_option(by_all(signed(command))))


@click.command("pause", short_help="Stop a consumer in all processes, until it is resumed.")
@click.argument("consumer", required=False)
@_options
def pause(
    consumer: str | None, files: Sequence[Path], *, operator: Operator, everything: bool, as_json: bool
) -> int:
    """Stop CONSUMER in all processes, until `oncemq resume`.

    Within two seconds every process finishes and settles what it runs, returns what it has not begun to the broker, and
    receives nothing more. A restart does not end the pause. Other consumers go on. `oncemq status` shows who paused what
    and why.
    """
    plan, chosen = _chosen(files, consumer, everything=everything)
    pausing.pause(plan, chosen, operator)
    output = Output(as_json=as_json)
    for each in chosen:
        output.record({"consumer": each.name, "paused": True, "who": operator.who, "why": operator.why})
        output.line(f"{each.name} is paused; `oncemq resume {each.name}` ends it")
    return OK


@click.command("resume", short_help="End the pause of a consumer.")
@click.argument("consumer", required=False)
@_options
def resume(
    consumer: str | None, files: Sequence[Path], *, operator: Operator, everything: bool, as_json: bool
) -> int:
    """End the pause of CONSUMER in all processes. A pause by a breaker ends by itself, and is not ended by this.

    Exit code 1: it was not paused by an operator.
    """
    plan, chosen = _chosen(files, consumer, everything=everything)
    ended = pausing.resume(plan, chosen, operator)
    output = Output(as_json=as_json)
    for each in chosen:
        output.record({"consumer": each.name, "resumed": each.name in ended})
        if each.name in ended:
            output.line(f"{each.name} is resumed")
        elif not everything:
            warn(f"{each.name} was not paused by an operator")
    return OK if ended or everything else FAILED


def _chosen(
    files: Sequence[Path], consumer: str | None, *, everything: bool
) -> tuple[AppPlan, Sequence[ConsumerPlan]]:
    if everything == (consumer is not None):
        raise click.UsageError("say which: CONSUMER; or --all for every one, without it")
    plan = opened_ledger(files, _NO_LEDGER)
    scopes = {each.scope for each in chosen_consumers(plan, consumer)}
    # A pause is a consumer's, with all of its topics.
    return plan, [each for each in plan.consumers if each.scope in scopes]
