"""`oncemq check`: reports everything that keeps an app from running, without starting it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli.exit_codes import BROKER, OK, exit_code
from oncemq.cli.files import app_option
from oncemq.cli.preflight import Proof, connect_to_all
from oncemq.cli.route_lines import route_lines, tries
from oncemq.config import load
from oncemq.config.build.plan import LoadedApp
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.source.problems import ConfigProblem
from oncemq.errors import ConfigError


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
    "--connect",
    is_flag=True,
    help="Also prove that brokers, database, Redis and ledger tables are there, and that the brokers have what "
    "each consumer needs.",
)
@app_option
def check(files: Sequence[Path], as_json: bool, connect: bool) -> int:
    """Report every error of the app, or that it can run.

    Handlers are imported and every rule is checked; nothing is consumed and nothing is changed.
    """
    try:
        loaded = load(files)
    except ConfigError as error:
        if not as_json:
            raise
        click.echo(_json(error.problems, [], [], []))
        return exit_code(error)
    for engine in loaded.plan.engines:
        click.get_current_context().call_on_close(engine.dispose)
    proof = connect_to_all(loaded) if connect else Proof()
    if as_json:
        warnings = [*loaded.warnings, *proof.problems.warnings, *proof.risks]
        consumers = [consumer.name for consumer in loaded.plan.consumers]
        click.echo(_json([*proof.problems.errors, *proof.failures], warnings, consumers, proof.unknown))
    else:
        _print(loaded, proof, connect=connect)
    if proof.failures:
        return exit_code(proof.failures[0])
    return BROKER if proof.problems.errors else OK


def _print(loaded: LoadedApp, proof: Proof, *, connect: bool) -> None:
    for warning in (*loaded.warnings, *proof.problems.warnings, *proof.risks):
        click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {warning}", err=True)
    errors = (*proof.problems.errors, *proof.failures)
    for error in errors:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True)
    for settled in loaded.consumers:
        click.echo(_line(settled))
        for line in route_lines(settled):
            click.echo(f"  {line}")
    if not loaded.plan.consumers:
        click.echo("no consumers: this app can publish only")
    if not errors:
        click.echo(
            f"{loaded.plan.name} may run" + ("; brokers, database and tables are there" if connect else "")
        )
    for text in proof.unknown:
        click.echo(f"not compared: {text}")


def _line(settled: ConsumerSettings) -> str:
    return (
        f"{settled.name}: {settled.broker}/{settled.topic} as {settled.group} → {settled.handler_text} "
        f"({settled.effects.value}, {' + '.join(choice.name for choice in settled.strategies)}, "
        f"{tries(settled.retry)})"
    )


def _json(
    errors: Iterable[Any],
    warnings: Iterable[Any],
    consumers: Sequence[str],
    unknown: Sequence[str],
) -> str:
    told = [_problem(error) for error in errors]
    return json.dumps(
        {
            "ok": not told,
            "errors": told,
            "warnings": [_problem(warning) for warning in warnings],
            "consumers": list(consumers),
            "not_compared": list(unknown),
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
