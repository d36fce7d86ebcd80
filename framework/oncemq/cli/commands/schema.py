"""`oncemq schema`: prints the JSON Schema with which editors complete and check app.yaml."""

import json

import click


@click.command(
    epilog="""\b
Examples:
  oncemq schema > oncemq.schema.json
  # and as the first line of app.yaml, for editors with a YAML language server:
  # yaml-language-server: $schema=./oncemq.schema.json
"""
)
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of app.yaml."""
    from oncemq.config.json_schema import app_schema  # noqa: PLC0415 - keeps `--help` fast

    click.echo(json.dumps(app_schema(), indent=2, ensure_ascii=False))
