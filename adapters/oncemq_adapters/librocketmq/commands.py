"""`oncemq rocketmq fetch-library`: puts a librocketmq where rocketmq+native:// finds it."""

import os
from pathlib import Path

import click

from oncemq_adapters.librocketmq.fetching import fetch
from oncemq_adapters.librocketmq.library import cache_folder


@click.group()
def rocketmq() -> None:
    """Prepare this machine for RocketMQ's drivers."""


@rocketmq.command("fetch-library")
@click.option(
    "--from",
    "wheel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The wheel rocketmq 0.4.4, where the package index cannot be reached.",
)
def fetch_library(wheel: Path | None) -> None:
    """Put the librocketmq of the package rocketmq 0.4.4 into the user's cache folder; installs no package."""
    click.echo(f"librocketmq is at {fetch(cache_folder(os.environ), wheel)}")
