"""The program `oncemq`: its commands, the files they read, and the handling of errors."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from oncemq import __version__
from oncemq.cli.exit_codes import CONFIG, FAILED, INTERRUPTED, MEANINGS, USAGE, exit_code
from oncemq.cli.files import app_option
from oncemq.cli.lazy import Command, LazyGroup
from oncemq.errors import ConfigError, OnceMQError
from oncemq.registry import COMMANDS as STRATEGY_COMMANDS

COMMANDS = {
    "init": Command("oncemq.cli.commands.init:init", "Write a runnable project into a folder."),
    "check": Command("oncemq.cli.commands.check:check", "Report every error of the app, or that it can run."),
    "tables": Command(
        "oncemq.cli.commands.tables:tables", "Create, upgrade, drop or print the ledger's tables."
    ),
    "run": Command("oncemq.cli.commands.run:run", "Consume until stopped."),
    "status": Command(
        "oncemq.cli.commands.status:status", "Show what waits, what failed and which processes run."
    ),
    "top": Command("oncemq.cli.commands.live.top:top", "Watch consumers, rates and backlogs live."),
    "dashboard": Command(
        "oncemq.cli.commands.live.dashboard:dashboard", "Serve a web page with all of this, live."
    ),
    "pause": Command(
        "oncemq.cli.commands.live.pause:pause", "Stop a consumer in all processes, until it is resumed."
    ),
    "resume": Command("oncemq.cli.commands.live.pause:resume", "End the pause of a consumer."),
    "reload": Command(
        "oncemq.cli.commands.live.reload:reload", "Have all processes take over their changed configuration."
    ),
    "config": Command(
        "oncemq.cli.commands.records.config:config",
        "List, compare or restore configurations that the app has run.",
    ),
    "record": Command(
        "oncemq.cli.commands.live.record:record_", "Write what arrives at a consumer into a file."
    ),
    "rehearse": Command(
        "oncemq.cli.commands.messages.rehearse:rehearse",
        "Show what another configuration makes of a recording.",
    ),
    "publish": Command("oncemq.cli.commands.publish:publish", "Publish JSON lines to a topic."),
    "dead-letters": Command(
        "oncemq.cli.commands.dead_letters:dead_letters", "List, show, replay or purge dead letters."
    ),
    "outbox": Command(
        "oncemq.cli.commands.outbox:outbox",
        "List, show, retry or drop published messages that their broker refuses.",
    ),
    "relay": Command("oncemq.cli.commands.relay:relay", "Send what waits in the outbox, without consuming."),
    "requests": Command(
        "oncemq.cli.commands.requests:requests",
        "List or clear requests whose outcome is unknown.",
    ),
    "groups": Command("oncemq.cli.commands.groups:groups", "List or take over consumer groups."),
    "inspect": Command(
        "oncemq.cli.commands.inspect:inspect", "Show everything known about one business key."
    ),
    "audit": Command("oncemq.cli.commands.records.audit:audit", "List changes that operators made."),
    "forget": Command(
        "oncemq.cli.commands.records.forget:forget", "Let messages that have taken effect run again."
    ),
    "reconcile": Command(
        "oncemq.cli.commands.reconcile:reconcile",
        "Find out about effects whose outcome is unknown.",
    ),
    "demo": Command(
        "oncemq.cli.demo.command:demo", "Watch order life cycles survive duplicates, disorder and a kill."
    ),
    "purge": Command("oncemq.cli.commands.records.purge:purge", "Remove the ledger's old records now."),
    "schema": Command("oncemq.cli.commands.schema:schema", "Print the JSON Schema of app.yaml, for editors."),
    "asyncapi": Command(
        "oncemq.cli.commands.messages.asyncapi:asyncapi", "Write an AsyncAPI document of the app."
    ),
    "schemas": Command(
        "oncemq.cli.commands.messages.schemas:schemas", "Check, list or print versions of payload schemas."
    ),
    "doctor": Command(
        "oncemq.cli.commands.doctor:doctor", "Print versions, servers and settings, to report a problem."
    ),
    "completion": Command(
        "oncemq.cli.completion:completion", "Print the script that completes commands in a shell."
    ),
}

_EPILOG = """\b
Examples:
  oncemq init shop && cd shop
  oncemq check
  oncemq tables create
  oncemq run --until-idle 5s
  oncemq -f base.yaml -f production.yaml run --processes 4

\b
Exit codes:
""" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS)


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    group=STRATEGY_COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@app_option
@click.version_option(__version__, prog_name="oncemq")
@click.pass_context
def oncemq(context: click.Context, files: Sequence[Path]) -> None:
    """Consume from message brokers so that every business message takes effect once."""
    context.obj = tuple(files)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit with its code; expected failures print no traceback."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result = oncemq.main(
            args=None if arguments is None else list(arguments), prog_name="oncemq", standalone_mode=False
        )
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE if isinstance(error, click.UsageError) else FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return FAILED
    except OnceMQError as error:
        show_error(error)
        return exit_code(error)
    return result if isinstance(result, int) else 0


def show_error(error: OnceMQError) -> None:
    """Print the error on stderr: one line for each problem of a configuration."""
    if not isinstance(error, ConfigError):
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True)
        return
    for problem in error.problems:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {problem}", err=True)
    count = len(error.problems)
    click.echo(
        f"{count} problem{'s' if count != 1 else ''}; nothing was started (exit code {CONFIG})", err=True
    )


def _forget_output() -> None:
    """The reader of our output is gone; the interpreter's own flush at exit would report an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
