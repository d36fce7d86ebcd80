"""The commands `dead-letters list / show / replay / purge`: manage messages that could not be applied."""

import base64
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, confirm, counted, json_option, limit_option, shown, warn
from oncemq.common.redaction import Redactor
from oncemq.config import load
from oncemq.contracts.adapter import DeadLetter
from oncemq.errors import BrokerError, InfrastructureError
from oncemq.message import headers as names
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.brokers import by_broker, chosen_consumers, prepared
from oncemq.operate.dead_letters import BATCH, Act, Filter, decided, found_letters, row_of
from oncemq.operate.letters import EVERYTHING, letters_of

COLUMNS = {
    "consumer": "consumer",
    "id": "id",
    "key": "key",
    "reason": "reason",
    "attempts": "attempts",
    "dead_at": "dead at",
    "error": "error",
}


_DONE = {Act.REPLAY: "replayed", Act.PURGE: "purged"}


def filters(command: Any) -> Any:
    """Add the options that choose dead letters."""
    for option in (
        click.option(
            "--id", "ids", multiple=True, help="Only this one, as `list` shows it; may be repeated."
        ),
        click.option("--key", help="Only those of this business key."),
        click.option(
            "--reason", help="Only those with this reason, such as rejected, undecodable, no-key, crashed."
        ),
    ):
        command = option(command)
    return command


@click.group("dead-letters", short_help="List, show, replay or purge dead letters.")
def dead_letters() -> None:
    """Manage messages that could not be applied.

    Each consumer group has its own dead letters; they stay until you replay or purge them.
    """


@dead_letters.command("list", short_help="List dead letters, oldest first.")
@click.argument("consumer", required=False)
@filters
@limit_option("per consumer")
@json_option
@app_option
def list_letters(
    consumer: str | None, limit: int, files: Sequence[Path], *, as_json: bool, **chosen: Any
) -> None:
    """List the dead letters of CONSUMER, or of all consumers."""
    plan = load(files).plan
    found = found_letters(
        plan, chosen_consumers(plan, consumer), _filter(**chosen), limit, warn, bodies=False
    )
    rows = (row_of(owner, letter) for owner, letter in found)
    Output(as_json=as_json).rows(COLUMNS, rows, none="no dead letters")


@dead_letters.command("show", short_help="Show a dead letter whole, body included.")
@click.argument("consumer")
@click.argument("id")
@json_option
@app_option
def show_letter(consumer: str, id: str, files: Sequence[Path], *, as_json: bool) -> int:  # noqa: A002 - the argument's name
    """Show the dead letter ID of CONSUMER: where it came from, why it failed, its headers and its original body."""
    plan = load(files).plan
    output = Output(as_json=as_json)
    with closing(
        found_letters(plan, chosen_consumers(plan, consumer), Filter(frozenset({id})), 1, warn)
    ) as found:
        for owner, letter in found:
            _show(output, row_of(owner, letter), letter, owner.redact)
            return OK
    click.echo(f"consumer {shown(consumer)} has no dead letter {shown(id)}", err=True)
    return FAILED


def _show(output: Output, row: dict[str, Any], letter: DeadLetter, redact: Redactor) -> None:
    trace = redact(letter.message.headers.get(names.TRACEBACK, ""))
    headers = {
        name: text for name, text in letter.message.headers.items() if not name.startswith(names.PREFIX)
    }
    body = letter.message.body
    try:
        text = {"body": body.decode()}
    except UnicodeDecodeError:
        text = {"body_base64": base64.b64encode(body).decode()}
    output.record({**row, "traceback": trace or None, "headers": headers, **text})
    for name, value in row.items():
        output.line(f"{name.replace('_', ' ') + ':':<17}{shown(value)}")
    if trace:
        output.line("traceback:")
        output.block(trace)
    for name, value in headers.items():
        output.line(f"{'header:':<17}{name}: {value}")
    output.line(f"{'body:':<17}{counted(len(body), 'byte')}{'' if 'body' in text else ', shown in base64'}")
    output.block(next(iter(text.values())))


@dead_letters.command("replay", short_help="Send dead letters to their consumer again.")
@click.argument("consumer", required=False)
@filters
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=EVERYTHING,
    help="At most so many per consumer, oldest first.",
)
@signed
@json_option
@app_option
def replay_letters(
    consumer: str | None,
    limit: int,
    files: Sequence[Path],
    *,
    operator: Operator,
    everything: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Send dead letters to CONSUMER again (all consumers if none is named), with fresh attempts.

    Select with --id, --key, --reason, or --all. A message that has taken effect meanwhile stays a duplicate.
    """
    _act(
        Act.REPLAY, consumer, limit, files, _asked(everything=everything, **chosen), operator, as_json=as_json
    )


@dead_letters.command("purge", short_help="Delete dead letters permanently.")
@click.argument("consumer", required=False)
@filters
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=EVERYTHING,
    help="At most so many per consumer, oldest first.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@signed
@json_option
@app_option
def purge_letters(
    consumer: str | None,
    limit: int,
    files: Sequence[Path],
    *,
    operator: Operator,
    everything: bool,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Delete dead letters of CONSUMER (of all consumers if none is named) permanently.

    Select with --id, --key, --reason, or --all.
    """
    asked = _asked(everything=everything, **chosen)
    if not yes:
        confirm(f"Permanently delete these dead letters of {consumer or 'all consumers'}?")
    _act(Act.PURGE, consumer, limit, files, asked, operator, as_json=as_json)


def _act(
    act: Act,
    consumer: str | None,
    limit: int,
    files: Sequence[Path],
    chosen: Filter,
    operator: Operator,
    *,
    as_json: bool,
) -> None:
    plan = load(files).plan
    if plan.engine is not None:
        opened(plan)
    output, done = Output(as_json=as_json), _DONE[act]
    trail = Trail(plan, operator, f"dead-letters {act}", warn)
    for broker, mine in by_broker(chosen_consumers(plan, consumer)).items():
        with prepared(plan, broker, mine) as adapter:
            for target in mine:
                found = letters_of(plan, adapter, target, warn)
                count = 0
                try:
                    for some in decided(found, act, chosen, limit, trail):
                        count += some
                except (BrokerError, InfrastructureError):
                    warn(
                        f"{done} {counted(count, 'dead letter')} of {target.name} for certain, and up to {BATCH} more; "
                        "`oncemq dead-letters list` shows what is left"
                    )
                    raise
                output.record({"consumer": target.name, done: count})
                output.line(f"{done} {counted(count, 'dead letter')} of {target.name}")


def _asked(*, everything: bool, **chosen: Any) -> Filter:
    found = _filter(**chosen)
    if everything == found.restricts:
        raise click.UsageError("say which: --id, --key or --reason; or --all for every one, without these")
    return found


def _filter(ids: Sequence[str], key: str | None, reason: str | None) -> Filter:
    return Filter(frozenset(ids), key, reason)
