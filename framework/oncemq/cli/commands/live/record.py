"""The command `record`: writes what arrives at a consumer of the running app into a file."""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from oncemq.cli.exit_codes import OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, json_option, warn
from oncemq.common.durations import format_duration, parse_duration
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.engine.plan import ConsumerPlan
from oncemq.engine.recording.lines import Wanted
from oncemq.errors import ConfigError
from oncemq.operate.auditing import Operator
from oncemq.operate.brokers import chosen_consumers
from oncemq.operate.recording import Recorded, header_of, record

_HEADER = re.compile(r"headers\.([A-Za-z_][\w-]*)")
_PATH = re.compile(r"[\w-]+(\.[\w-]+)*")


def _duration(_context: click.Context, _parameter: click.Parameter, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _paths(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    found = tuple(path.removeprefix("body.") for path in given)
    for path in found:
        if not _PATH.fullmatch(path):
            raise click.BadParameter(
                f"{path!r} is not a path in the body: write customer.email, without [0] or *"
            )
    return found


@click.command("record", short_help="Write what arrives at a consumer into a file.")
@click.option("--consumer", metavar="NAME", help="Which consumer; may be left out if the app has one.")
@click.option(
    "--for",
    "lasts",
    default="10m",
    show_default=True,
    callback=_duration,
    metavar="DURATION",
    help="How long; Ctrl-C ends it earlier, with a whole file.",
)
@click.option(
    "-o",
    "--output",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A new file; compressed if its name ends in .gz.",
)
@click.option("--bodies", is_flag=True, help="Record bodies, too, except for what --mask replaces.")
@click.option(
    "--field",
    "fields",
    multiple=True,
    callback=_paths,
    metavar="PATH",
    help="Record this field of the body alone, such as status; several times for several.",
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    callback=_paths,
    metavar="PATH",
    help="Replace this field's value, such as customer.email; several times for several.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME",
    help="Record this header, besides those that the consumer's own expressions name.",
)
@signed
@json_option
@app_option
def record_(
    consumer: str | None,
    lasts: timedelta,
    file: Path,
    fields: tuple[str, ...],
    masks: tuple[str, ...],
    headers: tuple[str, ...],
    files: Sequence[Path],
    *,
    operator: Operator,
    bodies: bool,
    as_json: bool,
) -> int:
    """Write what arrives at a consumer of the running app into a file, for `oncemq rehearse`.

    The app's processes note it while they work, and hand it over through the ledger: keys, versions, identities,
    fingerprints of bodies, attempts, outcomes. They need no restart, and nothing is consumed by this command. The file can
    be read by its owner only; keys and identities are in it as they are, bodies only with --bodies or --field.

    A process that dies takes up to two seconds of its notes with it; messages are not affected.
    """
    if masks and not (bodies or fields):
        raise click.UsageError(
            "--mask is for --bodies or --field: nothing of a body is recorded without them"
        )
    loaded = load(files)
    target = _target(loaded, consumer)
    if loaded.plan.engine is None:
        raise ConfigError(["the app has no database, through which its processes could be asked to record"])
    opened(loaded.plan)
    wanted = Wanted(bodies, fields, masks, headers)
    named = set(_HEADER.findall(str(header_of(loaded, target, wanted)["declared"])))
    wanted = Wanted(bodies, fields, masks, tuple(sorted({*headers, *named})))
    output = Output(as_json=as_json)
    output.line(f"recording {target.name} for {format_duration(lasts)} into {file}; Ctrl-C ends it earlier")
    found = record(loaded, target, lasts, wanted, file, operator, lambda _found: None)
    _report(found, target, file, output)
    return OK


def _report(found: Recorded, target: ConsumerPlan, file: Path, output: Output) -> None:
    output.record(
        {"consumer": target.name, "arrivals": found.arrivals, "lost": found.lost, "file": str(file)}
    )
    output.line(f"{found.arrivals} arrivals recorded in {file}")
    if found.lost:
        warn(f"{found.lost} arrivals more are not in the file: a process had more of them than it can keep")
    for path in sorted(found.unmatched):
        warn(f"--mask {path} has matched nothing: is the field spelled like this?")
    if not found.arrivals:
        warn(f"nothing arrived: does the app run, and with consumer {target.name}? `oncemq status` shows it")


def _target(loaded: LoadedApp, name: str | None) -> ConsumerPlan:
    found = chosen_consumers(loaded.plan, name)
    if len(found) == 1 and found[0].fans_in:
        raise click.UsageError(
            f"{found[0].called} has several topics, and a recording is of one: it cannot be recorded"
        )
    if len(found) != 1:
        names = ", ".join(each.name for each in loaded.plan.consumers)
        raise click.UsageError(f"say which --consumer: {names}")
    return found[0]
