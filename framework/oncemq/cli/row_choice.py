"""Options of commands that manage ledger rows which need an operator's decision."""

from collections.abc import Callable, Collection
from typing import Any

import click

Decorator = Callable[[Any], Any]


def filters(one: str, key: str) -> Decorator:
    """Return a decorator that adds `--id`, repeatable, and `--key` to a command."""
    by_id = click.option(
        "--id", "ids", multiple=True, help=f"Only {one}, as `list` shows it; may be repeated."
    )
    by_key = click.option("--key", help=f"Only those {key}.")
    return lambda command: by_key(by_id(command))


def every(command: Any) -> Any:
    """Add `--all`."""
    return click.option("--all", "everything", is_flag=True, help="All of them.")(command)


def deciding(command: Any) -> Any:
    """Add `--all` and `--yes`."""
    return every(click.option("--yes", is_flag=True, help="Do not ask.")(command))


def insist_on_choice(ids: Collection[str], key: str | None, *, everything: bool) -> None:
    """Refuse a decision about no rows, and one about all and some at once.

    Raises:
        click.UsageError: names the options.
    """
    if everything == bool(ids or key is not None):
        raise click.UsageError("say which: --id or --key; or --all for every one, without these")
