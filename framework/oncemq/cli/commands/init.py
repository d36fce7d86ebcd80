"""`oncemq init`: creates a runnable project on the embedded broker and SQLite."""

from importlib.resources import files as resources
from pathlib import Path

import click

from oncemq.errors import OnceMQError

FILES = ("app.yaml", "handlers.py", "test_handlers.py", "messages.jsonl", "README.md")


@click.command(
    epilog="""\b
Examples:
  oncemq init              # into the current folder
  oncemq init shop         # into the folder shop, made if it is missing
"""
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
def init(folder: Path) -> None:
    """Write a runnable project into FOLDER: app.yaml, a handler with tests, sample messages and a README.

    It needs no server. Nothing that is there is overwritten.
    """
    taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise OnceMQError(
            f"{', '.join(str(folder / name) for name in taken)} is there already, and nothing was written: "
            "name another folder, like `oncemq init shop`"
        )
    templates = resources("oncemq.cli") / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = (templates / f"{name}.txt").read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
            click.echo(f"wrote {folder / name}")
    except OSError as error:
        raise OnceMQError(
            f"cannot write into {folder}: {error.strerror or error} – name a folder that you may write to, like "
            "`oncemq init shop`"
        ) from error
    click.echo("\nNext, run:")
    for command in _next(folder):
        click.echo(f"  {command}")


def _next(folder: Path) -> list[str]:
    enter = [] if folder.resolve() == Path.cwd() else [f"cd {folder}"]
    return [
        *enter,
        "oncemq check",
        "oncemq tables create",
        "python handlers.py",
        "oncemq publish order.paid messages.jsonl",
        "oncemq run --until-idle 2s",
        "python handlers.py",
    ]
