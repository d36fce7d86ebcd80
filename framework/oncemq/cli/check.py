"""`oncemq check`: everything that keeps an app from running, without starting it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli.exit_codes import OK, exit_code
from oncemq.cli.files import app_option
from oncemq.cli.proving import failed_connections, redis_risks
from oncemq.config import load
from oncemq.config.build import LoadedApp
from oncemq.config.problems import ConfigProblem
from oncemq.config.settled import Settled
from oncemq.durations import format_duration
from oncemq.errors import ConfigError, OnceMQError


@click.command(
    epilog="""\b
Examples:
  oncemq check
  oncemq check --connect
  oncemq -f base.yaml -f production.yaml check --json
"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
@click.option(
    "--connect", is_flag=True, help="Also prove that brokers, database, Redis and ledger tables are there."
)
@app_option
def check(files: Sequence[Path], as_json: bool, connect: bool) -> int:
    """Say everything that is wrong with the app, or that it may run.

    Handlers are imported and every rule is checked; nothing is consumed and nothing is changed.
    """
    try:
        loaded = load(files)
    except ConfigError as error:
        if not as_json:
            raise
        click.echo(_json(error.problems, [], [], []))
        return exit_code(error)
    failures = list(failed_connections(loaded.plan)) if connect else []
    risks = redis_risks(loaded.plan) if connect else []
    if as_json:
        consumers = [consumer.name for consumer in loaded.plan.consumers]
        click.echo(_json([], [*loaded.warnings, *risks], failures, consumers))
    else:
        _print(loaded, failures, risks, connect=connect)
    return exit_code(failures[0]) if failures else OK


def _print(
    loaded: LoadedApp, failures: Sequence[OnceMQError], risks: Sequence[str], *, connect: bool
) -> None:
    for warning in (*loaded.warnings, *risks):
        click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {warning}", err=True)
    for failure in failures:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {failure}", err=True)
    for settled in loaded.consumers:
        click.echo(_line(settled))
    if not loaded.plan.consumers:
        click.echo("no consumers: this app can publish only")
    if not failures:
        click.echo(
            f"{loaded.plan.name} may run" + ("; brokers, database and tables are there" if connect else "")
        )


def _line(settled: Settled) -> str:
    handler = settled.handler if isinstance(settled.handler, str) else settled.handler.__name__
    return (
        f"{settled.name}: {settled.broker}/{settled.topic} as {settled.group} → {handler} "
        f"({settled.effects.value}, {' + '.join(choice.name for choice in settled.strategies)}, "
        f"{settled.retry.attempts} attempts within {format_duration(settled.retry.horizon())})"
    )


def _json(
    problems: Iterable[Any],
    warnings: Iterable[ConfigProblem | str],
    failures: Sequence[OnceMQError],
    consumers: Sequence[str],
) -> str:
    errors = [_problem(problem) for problem in problems] + [{"text": str(error)} for error in failures]
    return json.dumps(
        {
            "ok": not errors,
            "errors": errors,
            "warnings": [_problem(warning) for warning in warnings],
            "consumers": list(consumers),
        },
        indent=2,
        ensure_ascii=False,
    )


def _problem(problem: Any) -> dict[str, Any]:
    if not isinstance(problem, ConfigProblem):
        return {"text": str(problem)}
    position = problem.position
    return {
        "file": position.file,
        "line": position.line,
        "column": position.column,
        "text": problem.text,
        "advice": problem.advice,
    }
