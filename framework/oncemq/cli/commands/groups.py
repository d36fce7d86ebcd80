"""The commands `groups list / take`: show which consumer owns which consumer group, and change the owner."""

from collections.abc import Sequence
from pathlib import Path

import click

from oncemq.cli.exit_codes import OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened_ledger
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, confirm, counted, json_option
from oncemq.engine.group_ownership import places_of
from oncemq.ledger.coordination import groups as ledger_groups
from oncemq.operate.auditing import Operator, Trail, selection
from oncemq.operate.brokers import chosen_consumers

COLUMNS = {"name": "name", "broker": "broker", "owner": "owner"}


@click.group(short_help="List or take over consumer groups.")
def groups() -> None:
    """Manage the owners of consumer groups.

    A group, with its queues, belongs to the consumer that first ran with it. Another consumer or app with the same
    ledger is refused: both would apply copies of the same messages. A column by which a strategy decides about a
    topic's messages (`entity`) belongs to one consumer in the same way.
    """


@groups.command("list", short_help="List what this app's consumers need for themselves, and the owners.")
@json_option
@app_option
def list_groups(files: Sequence[Path], *, as_json: bool) -> int:
    """List queues, groups and columns that this app's consumers need for themselves, with their owners."""
    plan = opened_ledger(files, "has no ledger that knows owners of groups")
    names = [place.name for place in places_of(plan)]
    engine = plan.engines[0]
    with engine.begin() as connection:
        known = ledger_groups.owners(connection, names)
    rows = [{"name": owned.name, "broker": owned.broker, "owner": owned.owner} for owned in known]
    Output(as_json=as_json).rows(COLUMNS, rows, none="no group has an owner yet")
    return OK


@groups.command("take", short_help="Make this app's consumers the owners of their groups.")
@click.argument("consumer", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@signed
@app_option
def take_groups(consumer: str | None, files: Sequence[Path], *, operator: Operator, yes: bool) -> int:
    """Make CONSUMER (or all consumers of this app) the owner of its group, after a rename or a deliberate move.

    Stop the former owner first. Messages that it applied are recorded under its name: redelivered, they are applied
    again.
    """
    plan = opened_ledger(files, "has no ledger that knows owners of groups")
    trail = Trail(plan, operator, "groups take")
    for taker in chosen_consumers(plan, consumer):
        places = places_of(plan, taker.name)
        with plan.engines[0].begin() as connection:
            known = ledger_groups.owners(connection, [place.name for place in places])
        there = {(place.name, place.broker) for place in places}
        former = sorted(
            {other.owner for other in known if (other.name, other.broker) in there} - {taker.scope}
        )
        if former and not yes:
            confirm(
                f"{taker.name} takes what belongs to {', '.join(former)}. Is that stopped, and may what it applied be "
                "applied again if it is redelivered?"
            )
        with plan.engines[0].begin() as connection:
            ledger_groups.take(connection, places, plan.clock.now())
            target = selection("", name=tuple(place.name for place in places), of=former)
            trail.note(connection, taker.scope, {}, target, len(places))
        click.echo(f"{taker.name} owns {counted(len(places), 'name')}")
    return OK
