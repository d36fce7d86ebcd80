"""The commands `dead-letters list / show / replay / purge`: looking after what could not be applied."""

import base64
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click

from oncemq.adapter import DeadLetter
from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.letters import EVERYTHING, Letters, letters_of
from oncemq.cli.opened import by_broker, chosen_consumers, prepared
from oncemq.cli.output import Output, confirm, counted, json_option, limit_option, shown, warn
from oncemq.config import load
from oncemq.errors import BrokerError
from oncemq.message import headers as names
from oncemq.redaction import Redactor
from oncemq.run.plan import AppPlan, ConsumerPlan

BATCH = 100
"""How many dead letters an adapter may hold in memory at once."""

COLUMNS = {
    "consumer": "consumer",
    "id": "id",
    "key": "key",
    "reason": "reason",
    "attempts": "attempts",
    "dead_at": "dead at",
    "error": "error",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant; what is not given does not restrict.

    Args:
        ids: as `list` shows them.
        key: the business key.
        reason: the machine-readable reason.
    """

    ids: frozenset[str] = frozenset()
    key: str | None = None
    reason: str | None = None

    @property
    def restricts(self) -> bool:
        """Whether anything is asked for at all."""
        return bool(self.ids) or self.key is not None or self.reason is not None

    def fits(self, letter: DeadLetter) -> bool:
        """Return whether this one is meant."""
        found = letter.message.headers
        return (
            (not self.ids or letter.id in self.ids)
            and self.key in (None, found.get(names.KEY))
            and self.reason in (None, found.get(names.REASON))
        )


def row_of(consumer: ConsumerPlan, letter: DeadLetter) -> dict[str, Any]:
    """Return what a list says about a dead letter."""
    found = letter.message.headers
    return {
        "consumer": consumer.name,
        "id": letter.id,
        "key": found.get(names.KEY),
        "reason": found.get(names.REASON),
        "attempts": names.attempt_of(found),
        "dead_at": letter.dead_at,
        "error": consumer.redact(_error(found)) or None,
        "topic": letter.message.topic,
        "message_id": letter.message.message_id,
        "published_at": letter.message.published_at,
        "first_failed_at": names.time_of(found, names.FIRST_FAILED_AT),
        "last_failed_at": names.time_of(found, names.LAST_FAILED_AT),
    }


def _error(headers: Mapping[str, str]) -> str:
    kind, text = headers.get(names.ERROR_CLASS), headers.get(names.ERROR_TEXT)
    if kind and text and not text.startswith(kind):
        text = f"{kind}: {text}"
    return text or kind or ""


@contextmanager
def browsing(found: Letters, chosen: Filter, limit: int) -> Iterator[Iterator[DeadLetter]]:
    """Lend the dead letters that are meant, oldest first; each is read when it is asked for.

    Afterwards all of them lie where they were.

    Raises:
        BrokerRefused: the broker cannot list dead letters.
    """
    with closing(_closable(found.all())) as letters:
        yield islice(filter(chosen.fits, letters), limit)


def _closable(letters: Iterator[DeadLetter]) -> Generator[DeadLetter]:
    yield from letters


def found_letters(
    plan: AppPlan, consumers: Sequence[ConsumerPlan], chosen: Filter, limit: int
) -> Generator[tuple[ConsumerPlan, DeadLetter]]:
    """Yield the dead letters that are meant with their consumers, oldest first; one is in memory at a time.

    Raises:
        BrokerRefused: the broker cannot list dead letters.
    """
    for broker, mine in by_broker(consumers).items():
        with prepared(plan, broker, mine) as adapter:
            for consumer in mine:
                with browsing(letters_of(plan, adapter, consumer), chosen, limit) as letters:
                    for letter in letters:
                        yield consumer, letter


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
    """Look after messages that could not be applied.

    Each consumer group has dead letters of its own; they stay until somebody replays or purges them.
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
    found = found_letters(plan, chosen_consumers(plan, consumer), _filter(**chosen), limit)
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
    with closing(found_letters(plan, chosen_consumers(plan, consumer), Filter(frozenset({id})), 1)) as found:
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
@json_option
@app_option
def replay_letters(
    consumer: str | None, limit: int, files: Sequence[Path], *, everything: bool, as_json: bool, **chosen: Any
) -> None:
    """Send dead letters to CONSUMER again (all consumers if none is named), with fresh attempts.

    Say which with --id, --key, --reason, or --all. What has taken effect meanwhile is a duplicate and stays one.
    """
    _act("replayed", consumer, limit, files, _asked(everything=everything, **chosen), as_json=as_json)


@dead_letters.command("purge", short_help="Remove dead letters for ever.")
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
@json_option
@app_option
def purge_letters(
    consumer: str | None,
    limit: int,
    files: Sequence[Path],
    *,
    everything: bool,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Remove dead letters of CONSUMER (of all consumers if none is named) for ever.

    Say which with --id, --key, --reason, or --all.
    """
    asked = _asked(everything=everything, **chosen)
    if not yes:
        confirm(f"Remove these dead letters of {consumer or 'all consumers'} for ever?")
    _act("purged", consumer, limit, files, asked, as_json=as_json)


def _act(
    done: str, consumer: str | None, limit: int, files: Sequence[Path], chosen: Filter, *, as_json: bool
) -> None:
    plan = load(files).plan
    output = Output(as_json=as_json)
    for broker, mine in by_broker(chosen_consumers(plan, consumer)).items():
        with prepared(plan, broker, mine) as adapter:
            for one in mine:
                found = letters_of(plan, adapter, one)
                act = found.replay if done == "replayed" else found.purge
                with browsing(found, chosen, limit) as letters:
                    ids = [letter.id for letter in letters]
                count = 0
                try:
                    for start in range(0, len(ids), BATCH):
                        count += act(ids[start : start + BATCH])
                except BrokerError:
                    warn(
                        f"{done} {counted(count, 'dead letter')} of {one.name} for certain, and up to {BATCH} more; "
                        "`oncemq dead-letters list` shows what is left"
                    )
                    raise
                output.record({"consumer": one.name, done: count})
                output.line(f"{done} {counted(count, 'dead letter')} of {one.name}")


def _asked(*, everything: bool, **chosen: Any) -> Filter:
    found = _filter(**chosen)
    if everything == found.restricts:
        raise click.UsageError("say which: --id, --key or --reason; or --all for every one, without these")
    return found


def _filter(ids: Sequence[str], key: str | None, reason: str | None) -> Filter:
    return Filter(frozenset(ids), key, reason)
