"""Report of the demo: bars and a table on a terminal, plain lines elsewhere, and each broken promise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from oncemq.cli.demo.show import Result, Tell
from oncemq.cli.demo.tally import Tally

_KEPT = "Every event counted once, none twice, none backwards – though a tenth came twice, shuffled"
MEANINGS = {
    "published": "events of the orders' lives, each sent once",
    "delivered": "with the copies, and with what the killed worker held",
    "applied": "handler ran, effect and record committed together",
    "duplicates": "a copy of an event that was applied before: acknowledged, not run",
    "stale": "an older event after a newer one of its order: acknowledged, not run",
    "dead letters": "could not be applied, kept for a person",
    "overtaken": "kept for a person: the killed worker was running it, and a later event was applied meanwhile",
    "double effects": "must be 0: an effect that is there twice",
    "out of order": "must be 0: an effect after that of a later event",
    "lost": "must be 0: an event that is neither applied nor explained above",
    "killed worker": "process id of the worker that was killed with SIGKILL",
    "throughput": "deliveries settled for each second",
}
"""Meaning of each figure."""

_FAULTS: tuple[tuple[str, Callable[[Tally], int]], ...] = (
    ("events were lost", lambda counts: counts.lost),
    ("effects came twice", lambda counts: counts.double),
    ("effects were applied backwards", lambda counts: counts.backwards),
    ("messages became dead letters", lambda counts: counts.dead),
)


@contextmanager
def audience(*, silent: bool) -> Iterator[Tell]:
    """Yield the callback that receives the demo's progress."""
    console = Console(stderr=silent)
    if silent:
        yield lambda *_: None
    elif not console.is_terminal:
        yield _Lines()
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console) as bars:
            yield _Bars(bars)


class _Lines:
    """Progress as plain lines: five for a step with a total, one for a single event."""

    def __init__(self) -> None:
        self._said: set[tuple[str, int]] = set()

    def __call__(self, act: str, done: int, total: int) -> None:
        fifth = 5 * done // max(1, total)
        if act.startswith("killed"):
            click.echo(f"{act} at {done:,} of {total:,}")
        elif fifth and (act, fifth) not in self._said:
            self._said.add((act, fifth))
            click.echo(f"{act}: {done:,} of {total:,}")


class _Bars:
    """Progress as bars, one per step; a single event is a line above them."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, act: str, done: int, total: int) -> None:
        if act.startswith("killed"):
            self._bars.console.print(f"{act} at {done:,} of {total:,}", highlight=False)
            return
        if act not in self._tasks:
            self._tasks[act] = self._bars.add_task(act, total=total)
        self._bars.update(self._tasks[act], completed=done)


def show_result(result: Result) -> None:
    """Print the counts, and whether the guarantee held."""
    console = Console(highlight=False)
    if console.is_terminal:
        table = Table(show_header=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_column()
        for name, value in _rows(result):
            table.add_row(name, value, MEANINGS[name])
        console.print(table)
    else:
        for name, value in _rows(result):
            click.echo(f"{name:<16}{value:>10}   {MEANINGS[name]}".rstrip())
    click.echo(verdict(result))


def verdict(result: Result) -> str:
    """Return the verdict: the guarantee held, or how it was broken and what the app logged."""
    if result.tally.holds:
        return f"{_KEPT}{', and a worker was killed midway' if result.killed else ''}."
    faults = [f"{count(result.tally):,} {what}" for what, count in _FAULTS if count(result.tally)]
    return f"The promise was broken: {', '.join(faults)}. The last the app said:\n{result.log}"


def _rows(result: Result) -> list[tuple[str, str]]:
    counts = result.tally
    return [
        ("published", f"{counts.published:,}"),
        ("delivered", f"{counts.delivered:,}"),
        ("applied", f"{counts.applied:,}"),
        ("duplicates", f"{counts.duplicates:,}"),
        ("stale", f"{counts.stale:,}"),
        ("dead letters", f"{counts.dead:,}"),
        ("overtaken", f"{counts.overtaken:,}"),
        ("double effects", f"{counts.double:,}"),
        ("out of order", f"{counts.backwards:,}"),
        ("lost", f"{counts.lost:,}"),
        ("killed worker", str(result.killed or "none")),
        ("throughput", f"{_throughput(result):,.0f}/s"),
    ]


def _throughput(result: Result) -> float:
    return result.tally.delivered / result.seconds if result.seconds > 0 else 0.0


def as_json(result: Result) -> dict[str, object]:
    """Return the result for scripts."""
    return {
        **asdict(result.tally),
        "holds": result.tally.holds,
        "killed": result.killed,
        "seconds": round(result.seconds, 2),
        "per_second": round(_throughput(result)),
    }
