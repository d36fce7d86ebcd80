"""The command `oncemq demo`: its options and the display of its progress."""

import json
from pathlib import Path

import click

from oncemq.cli.demo.report import as_json, audience, show_result
from oncemq.cli.demo.show import Settings, play


@click.command(
    epilog="""\b
Examples:
  oncemq demo
  oncemq demo --orders my-orders.csv --rounds 1
  oncemq demo --broker rocketmq://localhost:9876
  oncemq demo --broker amqp://localhost:5672/ --database postgresql://localhost/test
"""
)
@click.option("--broker", default="", metavar="URL", help="Use this broker instead of the embedded one.")
@click.option("--database", default="", metavar="URL", help="Use this database instead of SQLite.")
@click.option(
    "--orders",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A CSV file of orders of your own, with the columns of the shipped one.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How often the file's orders are told.",
)
@click.option(
    "--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Worker processes."
)
@click.option("--json", "wants_json", is_flag=True, help="Print the result as one JSON object.")
def demo(
    broker: str, database: str, orders: Path | None, rounds: int, processes: int, *, wants_json: bool
) -> int:
    """Show the promise: order events sent twice, shuffled, a worker killed – each counted once.

    Runs on an embedded broker and SQLite in a temporary folder, without any server, or on servers of yours;
    there it leaves its tables (order_steps, oncemq_…) and its queue behind.

    Exit code 0: no effect was lost, doubled or applied backwards. 1: one was, and it says how many.
    """
    settings = Settings(broker, database, orders, rounds, processes)
    with audience(silent=wants_json) as tell:
        result = play(settings, tell)
    if wants_json:
        click.echo(json.dumps(as_json(result)))
    else:
        show_result(result)
    return 0 if result.tally.holds else 1
