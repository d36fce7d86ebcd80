"""The command `oncemq demo` and what it prints."""

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from oncemq.cli.demo.show import Result, Settings, play


@click.command()
@click.option("--broker", default="", metavar="URL", help="Use this broker instead of the embedded one.")
@click.option("--database", default="", metavar="URL", help="Use this database instead of SQLite.")
@click.option(
    "--orders",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A CSV file of orders of your own, with the columns of the shipped one.",
)
@click.option("--rounds", default=5, show_default=True, help="How often the file's orders are told.")
@click.option("--processes", default=2, show_default=True, help="Worker processes.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.pass_context
def demo(
    context: click.Context,
    broker: str,
    database: str,
    orders: Path | None,
    rounds: int,
    processes: int,
    as_json: bool,
) -> None:
    r"""Show the promise: order events sent twice, shuffled, a worker killed – each counted once.

    Runs on an embedded broker and SQLite in a temporary folder, without any server. The same on yours:

    \b
      oncemq demo --broker amqp://localhost:5672/ --database postgresql+psycopg://localhost/test
    """
    settings = Settings(broker, database, orders, rounds, processes)
    if as_json:
        result = play(settings, lambda *_: None)
        click.echo(json.dumps(_as_json(result)))
    else:
        result = _visibly(settings)
        _print(result)
    context.exit(0 if result.tally.holds else 1)


def _visibly(settings: Settings) -> Result:
    console = Console()
    if not console.is_terminal:
        return play(settings, _Lines())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as bars:
        return play(settings, _Bars(bars))


class _Lines:
    """Progress as plain lines, ten for each act."""

    def __init__(self) -> None:
        self._said: tuple[str, int] = ("", -1)

    def __call__(self, act: str, done: int, total: int) -> None:
        now = (act, 10 * done // max(1, total))
        if now != self._said:
            self._said = now
            click.echo(f"{act}: {done} of {total}")


class _Bars:
    """Progress as bars, one for each act."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, act: str, done: int, total: int) -> None:
        if act.startswith("killed"):
            self._bars.console.print(act)
            return
        if act not in self._tasks:
            self._tasks[act] = self._bars.add_task(act, total=total)
        self._bars.update(self._tasks[act], completed=done)


def _print(result: Result) -> None:
    table = Table(title="Each event counted once", title_justify="left")
    table.add_column("")
    table.add_column("messages", justify="right")
    for name, value in _rows(result):
        table.add_row(name, value)
    Console().print(table)


def _rows(result: Result) -> list[tuple[str, str]]:
    counts = result.tally
    return [
        ("published", f"{counts.published:,}"),
        ("delivered", f"{counts.delivered:,}"),
        ("applied", f"{counts.applied:,}"),
        ("duplicates", f"{counts.duplicates:,}"),
        ("stale", f"{counts.stale:,}"),
        ("dead letters", f"{counts.dead:,}"),
        ("double effects", f"{counts.double:,}"),
        ("out of order", f"{counts.backwards:,}"),
        ("lost", f"{counts.lost:,}"),
        ("killed worker", str(result.killed or "none")),
        ("throughput", f"{_throughput(result):,.0f}/s"),
    ]


def _throughput(result: Result) -> float:
    return result.tally.delivered / result.seconds if result.seconds > 0 else 0.0


def _as_json(result: Result) -> dict[str, object]:
    return {
        **asdict(result.tally),
        "killed": result.killed,
        "seconds": round(result.seconds, 2),
        "per_second": round(_throughput(result)),
    }
