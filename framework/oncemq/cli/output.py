"""Output of commands: a table on a terminal, plain columns in a pipe, JSON lines for scripts; always escaped."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from oncemq.common.redaction import escape

Command = TypeVar("Command", bound=Callable[..., Any])

json_option: Callable[[Command], Command] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one object per line, for scripts."
)
"""The option of every command that prints data."""

_COPIED = frozenset({"id", "message_id", "key", "identity", "consumer", "topic"})
"""Fields that users copy from a table."""
_LEAST_COLUMN = 10


def limit_option(of_what: str) -> Callable[[Command], Command]:
    """Return the option that bounds a list; `of_what` ends its help, such as `per consumer`."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=100,
        show_default=True,
        help=f"At most so many {of_what}.",
    )


class Output:
    """Output of a command's results.

    Args:
        as_json: JSON lines instead of text.
        stream: the target; the process's stdout if None.
    """

    def __init__(self, *, as_json: bool = False, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = sys.stdout if stream is None else stream

    def line(self, text: str = "") -> None:
        """Print one line of text; nothing in JSON."""
        if not self.as_json:
            self._stream.write(escape(text) + "\n")

    def block(self, text: str) -> None:
        """Print several lines of text, each escaped."""
        for line in text.split("\n"):
            self.line(line)

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one JSON object; nothing in text mode."""
        if self.as_json:
            self._stream.write(json.dumps(record, default=_jsonable) + "\n")

    def rows(self, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]], *, none: str) -> int:
        """Print rows; returns their number.

        Args:
            columns: field names to headings; JSON contains every field of a row.
            rows: one mapping each.
            none: text for no rows.
        """
        if self.as_json:
            count = 0
            for row in rows:
                self.record(row)
                count += 1
            return count
        cells = [[shown(row.get(name)) for name in columns] for row in rows]
        if not cells:
            self.line(none)
        elif self._stream.isatty():
            self._table(columns, cells)
        else:
            self._plain(list(columns.values()), cells)
        return len(cells)

    def _table(self, columns: Mapping[str, str], cells: Sequence[Sequence[str]]) -> None:
        """Print a table as wide as the terminal; fields to be copied are never wrapped."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        width = 0
        for number, (name, heading) in enumerate(columns.items()):
            whole = max(len(heading), *(cell_len(row[number]) for row in cells)) if name in _COPIED else None
            table.add_column(heading, overflow="fold", no_wrap=name in _COPIED, min_width=whole)
            width += (whole or _LEAST_COLUMN) + 2
        for row in cells:
            # Text, not str: square brackets are not markup here.
            table.add_row(*(Text(cell) for cell in row))
        console = Console(file=self._stream)
        console.print(table, width=max(console.width, width), crop=False)

    def _plain(self, headings: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        lines = [[heading.upper() for heading in headings], *cells]
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        for line in lines:
            padded = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            self._stream.write(padded.rstrip() + "\n")

    def progress(self) -> Progress:
        """Return a progress bar on stderr, visible on a terminal only."""
        console = Console(file=sys.stderr)
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=self.as_json or not console.is_terminal,
        )


def shown(value: Any) -> str:
    """Return a value as text on one line: nothing as `-`, times to the second."""
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds").replace("+00:00", "Z")
    return escape(str(value))


def warn(text: str) -> None:
    """Print one line on stderr."""
    click.echo(escape(text), err=True)


def confirm(question: str) -> None:
    """Ask before data is lost; without a terminal, the error names the option for scripts.

    Raises:
        click.Abort: the answer was no.
        click.UsageError: there is no terminal, and no other input.
    """
    try:
        meant = click.confirm(question, err=True)
    except click.Abort:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "not done: there is no terminal to confirm at – add --yes to confirm"
            ) from None
        raise
    if not meant:
        raise click.Abort


def counted(count: int, noun: str) -> str:
    """Return `1 message` or `2,000 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _jsonable(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
