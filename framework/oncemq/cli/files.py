"""The app's files for a command: `-f` before or after the command, otherwise app.yaml."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_FILE = Path("app.yaml")
_HELP = "The app's file; given several times, each is laid over those before. Default: app.yaml."


def _chosen(context: click.Context, _parameter: click.Parameter, given: Sequence[Path]) -> tuple[Path, ...]:
    if context.parent is None:
        return tuple(given)
    before: tuple[Path, ...] = context.find_root().obj or ()
    return (*before, *given) or (DEFAULT_FILE,)


app_option: Callable[[Command], Command] = click.option(
    "-f", "--file", "files", type=click.Path(path_type=Path), multiple=True, callback=_chosen, help=_HELP
)
"""The option of the program, and of every command that needs an app."""
