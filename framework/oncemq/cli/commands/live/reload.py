"""The command `reload`: all processes of an app, on any machine, take over their changed configuration."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened_ledger
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, json_option, warn
from oncemq.common.durations import format_duration, parse_duration
from oncemq.operate.auditing import Operator
from oncemq.operate.configuration import reloading
from oncemq.operate.configuration.reloading import ENDED, SILENT, WAITING, Answer, Asked

_LOOK_EVERY = 0.5
_MEANINGS = {
    ENDED: "has ended meanwhile; when it is started again, it reads its files",
    SILENT: "was not seen for a minute; if it still runs, it reloads when it reaches the ledger again",
    WAITING: "has not answered yet; the outcome will be in `oncemq config history`",
}


def _duration(_context: click.Context, _parameter: click.Parameter, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("reload", short_help="Have all processes take over their changed configuration.")
@click.option(
    "--within",
    default="10m",
    show_default=True,
    callback=_duration,
    metavar="DURATION",
    help="Wait so long for the next answer.",
)
@click.option("--no-wait", is_flag=True, help="Only ask.")
@signed
@json_option
@app_option
def reload(
    files: Sequence[Path], *, within: timedelta, no_wait: bool, operator: Operator, as_json: bool
) -> int:
    """Have every `oncemq run` of the app, on any machine, take over its changed files and code, without stopping.

    Each notices it within two seconds, and does what it does at SIGHUP: its own files are checked, then its worker processes are
    replaced one after the other, while other processes wait for their turn. A file that cannot run changes nothing there. Prints
    what became of each.

    Exit code 1: one has refused, or has not answered.
    """
    plan = opened_ledger(
        files, "cannot be reloaded by this command: its processes read requests in the ledger"
    )
    asked = reloading.ask(plan, operator)
    output = Output(as_json=as_json)
    if not asked.processes:
        warn("no process of `oncemq run` is known to the ledger: does the app run?")
        return FAILED
    if no_wait:
        output.record({"request": asked.number, "processes": len(asked.processes)})
        output.line(
            f"{len(asked.processes)} processes were asked; `oncemq config history` shows their answers"
        )
        return OK
    answers = _followed(asked, within, lambda answer: _tell(answer, output))
    if not all(answer.ok for answer in answers):
        return FAILED
    for worker in asked.not_reached():
        warn(
            f"{worker.host} (pid {worker.pid}) has not been reloaded: it runs without `oncemq run` – restart it"
        )
    return OK


def _followed(asked: Asked, within: timedelta, tell: Callable[[Answer], None]) -> Sequence[Answer]:
    """Wait until each process has answered, so long for each answer; returns how far each is, after each was told once."""
    end, told, known = time.monotonic() + within.total_seconds(), set[str](), 0
    while True:
        answers = list(asked.answers())
        answered = sum(answer.state not in {WAITING, SILENT} for answer in answers)
        if answered > known:
            end, known = time.monotonic() + within.total_seconds(), answered
        open_ones = any(answer.state == WAITING for answer in answers)
        over = not open_ones or time.monotonic() >= end
        for answer in answers:
            settled = over or answer.state not in {WAITING, SILENT}
            if settled and answer.process.process not in told:
                told.add(answer.process.process)
                tell(answer)
        if over:
            break
        time.sleep(_LOOK_EVERY)
    if open_ones:
        warn(f"not all have answered: no answer has come for {format_duration(within)}")
    return answers


def _tell(answer: Answer, output: Output) -> None:
    process = answer.process
    output.record(
        {
            "host": process.host,
            "pid": process.pid,
            "process": process.process,
            "outcome": answer.state,
            "version": answer.version,
            "problems": list(answer.problems),
        }
    )
    what = _MEANINGS.get(answer.state) or f"has {answer.state} {answer.version}".rstrip()
    output.line(f"{process.host} (pid {process.pid}) {what}")
    for problem in answer.problems:
        output.line(f"  {problem}")
