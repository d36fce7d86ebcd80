"""`oncemq completion`: prints the script with which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_ONCEMQ_COMPLETE"


@click.command(
    epilog="""\b
Examples:
  eval "$(oncemq completion bash)"                       # in ~/.bashrc
  eval "$(oncemq completion zsh)"                        # in ~/.zshrc
  oncemq completion fish > ~/.config/fish/completions/oncemq.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for SHELL, which then completes commands and options of oncemq."""
    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(root, {}, "oncemq", _VARIABLE).source())
