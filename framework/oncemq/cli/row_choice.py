"""Options of commands that look after rows of the ledger which a person has to decide about."""

from collections.abc import Callable, Collection
from typing import Any

import click

Decorator = Callable[[Any], Any]


def filters(one: str, key: str) -> Decorator:
    """Return what adds `--id`, which may be repeated, and `--key` to a command; told what each one chooses."""
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
    """Refuse a decision about what nobody has named, and about all and some at once.

    Raises:
        click.UsageError: it says what to write.
    """
    if everything == bool(ids or key is not None):
        raise click.UsageError("say which: --id or --key; or --all for every one, without these")
