"""The commands `config`: the configurations that an app has run, how they differ, and the return to one of them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from oncemq.cli.exit_codes import OK
from oncemq.cli.files import app_option
from oncemq.cli.moments import moment
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, confirm, json_option, limit_option, warn
from oncemq.config import load_ledger
from oncemq.engine.plan import AppPlan
from oncemq.operate.auditing import Operator
from oncemq.operate.configuration import former
from oncemq.operate.configuration.history import engine_of, listed

_COLUMNS = {
    "at": "at",
    "configuration": "no.",
    "version": "version",
    "outcome": "outcome",
    "host": "host",
    "occasion": "by",
    "who": "who",
    "times": "times",
    "why": "why",
    "reason": "problem",
}


@click.group("config", short_help="List, compare or restore configurations that the app has run.")
def config() -> None:
    """List, compare or restore configurations that the app has run.

    The history is in the ledger, with texts whose secrets are masked. These commands need only `app` and `database` of the
    files, so they work while another part of them is wrong.
    """


@config.command("history", short_help="List what was started, taken over or refused, where and when.")
@click.option("--since", callback=moment, metavar="TIME", help="Only since then: a time or an age.")
@limit_option("lines")
@json_option
@app_option
def history(files: Sequence[Path], *, since: datetime | None, limit: int, as_json: bool) -> None:
    """List what was started, taken over or refused, by which host, when and why, the latest first.

    The number or the version is what `config show`, `config diff` and `config rollback` take. Starts of a host with the same
    text are one line, with the latest time.
    """
    rows = []
    for note in listed(_opened(files), limit, since):
        problems = list(note.problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        rows.append(
            {**asdict(note), "problems": problems, "reason": f"{problems[0]}{more}" if problems else ""}
        )
    if as_json:
        rows = [{name: value for name, value in row.items() if name != "reason"} for row in rows]
    Output(as_json=as_json).rows(_COLUMNS, rows, none="no configuration is in the history yet")


@config.command("show", short_help="Print the text of a configuration, without secrets.")
@click.argument("which", required=False, metavar="[N]")
@json_option
@app_option
def show(which: str | None, files: Sequence[Path], *, as_json: bool) -> None:
    """Print the text of configuration N, without secrets; without N that of the latest that has run."""
    found = former.chosen(_opened(files), which)
    output = Output(as_json=as_json)
    for each in found.texts:
        output.record({"number": found.number, "version": found.version, **asdict(each)})
        if len(found.texts) > 1:
            output.line(f"# ---- {each.file}")
        output.block(each.text.rstrip("\n"))


@config.command("diff", short_help="Show how two configurations differ.")
@click.argument("first", required=False, metavar="[A]")
@click.argument("second", required=False, metavar="[B]")
@json_option
@app_option
def diff(first: str | None, second: str | None, files: Sequence[Path], *, as_json: bool) -> None:
    """Show how configuration B differs from configuration A, without secrets.

    Without B: the files as they are now. Without A: from the latest that has run.
    """
    plan = _opened(files)
    old = former.chosen(plan, first)
    if second is None:
        name, texts = "now", former.present(files)
    else:
        new = former.chosen(plan, second)
        name, texts = new.version, new.texts
    found = former.difference(old.texts, texts, (old.version, name))
    output = Output(as_json=as_json)
    output.record({"from": old.version, "to": name, "same": not found, "difference": found})
    output.block(found or "no difference, secrets apart")


@config.command("rollback", short_help="Write a former configuration into the files.")
@click.argument("which", metavar="N")
@click.option("--preview", is_flag=True, help="Only show what would change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@signed
@json_option
@app_option
def rollback(
    which: str, files: Sequence[Path], *, preview: bool, yes: bool, operator: Operator, as_json: bool
) -> int:
    """Write configuration N into the files of this machine; secrets are taken from the files as they are now.

    It shows what changes, and asks. The text must load as it is now with today's code, else nothing is written. Each file is
    replaced at once, and what it was stays beside it as FILE.before-rollback. Running processes change nothing by themselves:
    `oncemq reload` has them take it over.
    """
    planned = former.rollback(_opened(files), which, files)
    output = Output(as_json=as_json)
    what = {"number": planned.former.number, "version": planned.former.version}
    if preview or not planned.difference:
        output.record({**what, "written": False, "difference": planned.difference})
        output.block(planned.difference or "the files have this text already, secrets apart")
        return OK
    if not yes or not as_json:
        _warn_block(planned.difference)
    if not yes:
        confirm(f"write configuration {planned.former.version} into {', '.join(map(str, files))}?")
    copies = planned.write(operator)
    output.record({**what, "written": True, "difference": planned.difference})
    output.line(f"written; the former text is in {', '.join(map(str, copies))}")
    output.line("`oncemq reload` has the app's processes take it over")
    return OK


def _warn_block(text: str) -> None:
    """Print several lines on stderr, each escaped."""
    for line in text.split("\n"):
        warn(line)


def _opened(files: Sequence[Path]) -> AppPlan:
    plan = load_ledger(files)
    engine_of(plan)
    opened(plan)
    return plan
