"""A command group that imports a command only when it is called, which keeps `--help` fast."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from oncemq.registry import did_you_mean, installed


class Command(NamedTuple):
    """Location of a command.

    Args:
        home: `module:name` of its click command.
        help: its line in the group's help.
    """

    home: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands are a table.

    Args:
        table: commands by name, in the order of the help.
        group: the entry-point group of strategies' commands; None = none.
        arguments: passed to `click.Group`.
    """

    def __init__(
        self,
        *arguments: Any,
        table: Mapping[str, Command] | None = None,
        group: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self._table = dict(table or {})
        for point in installed(group).values() if group is not None else ():
            self._table.setdefault(point.name, Command(point.value, ""))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the table's order."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in self._table:
            return None
        module, _colon, name = self._table[cmd_name].home.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, from the table: importing each of them would take a second."""
        found = [
            CompletionItem(name, help=command.help or None)
            for name, command in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an error for an unknown one suggests the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in self._table:
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], list(self._table))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table into the help."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.help or self._brought(ctx, name)) for name, command in self._table.items()]
            )

    def _brought(self, ctx: click.Context, name: str) -> str:
        """Return the help line of a strategy's command."""
        command = self.get_command(ctx, name)
        return command.get_short_help_str(80) if command is not None else ""
