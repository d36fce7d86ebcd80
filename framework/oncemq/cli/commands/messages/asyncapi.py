"""The command `asyncapi`: writes the AsyncAPI document of an app."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from oncemq.asyncapi import asyncapi_document
from oncemq.cli.files import app_option
from oncemq.cli.output import warn
from oncemq.config import load

_WIDTH = 120


@click.command(
    epilog="""\b
Examples:
  oncemq asyncapi -o asyncapi.yaml
  oncemq asyncapi --app-version 1.4.0 -o asyncapi.json
  oncemq -f base.yaml -f production.yaml asyncapi
"""
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write into this file, as JSON if its name ends in .json, else as YAML. Default: YAML on standard output.",
)
@click.option(
    "--app-version",
    default="0.0.0",
    show_default=True,
    help="The version of your app, which an AsyncAPI document has to state.",
)
@app_option
def asyncapi(files: Sequence[Path], output: Path | None, app_version: str) -> None:
    """Write an AsyncAPI 3.0 document: brokers, topics, consumers and the schemas of their messages.

    Nothing is connected to. Users and passwords are left out; what AsyncAPI has no field for has a name that begins
    with x-oncemq-.
    """
    loaded = load(files)
    for engine in loaded.plan.engines:
        click.get_current_context().call_on_close(engine.dispose)
    described = asyncapi_document(loaded, app_version, files[0].parent)
    for name in described.without:
        warn(f"{name} has no JSON Schema, so its payload is not described")
    text = _text(described.document, as_json=output is not None and output.suffix == ".json")
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"written: {output}", err=True)


def _text(document: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    # Through JSON, so that texts which remember where they were written are plain.
    plain = json.loads(json.dumps(document))
    return yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False
    )


class _Dumper(yaml.SafeDumper):
    """Writes equal values out instead of naming them by anchors, which few readers of AsyncAPI know."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True
