"""The command `purge`: removes the ledger's old records now, as the running app does in the background."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Engine

from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, json_option
from oncemq.common.durations import format_duration, parse_duration
from oncemq.config import load
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ConfigError, LedgerError
from oncemq.ledger.database.server_clock import LedgerClock
from oncemq.ledger.generations import rotation
from oncemq.ledger.messages import parking
from oncemq.ledger.purge import BATCH, CLAIMS, HISTORY, PROCESSED, SUSPECTS, Aged
from oncemq.ledger.purge import purge as purge_batch
from oncemq.operate.auditing import Operator, Trail
from oncemq.operate.brokers import chosen_consumers

TABLES = {"processed": PROCESSED, "claims": CLAIMS, "history": HISTORY, "suspects": SUSPECTS}
COLUMNS = {
    "consumer": "consumer",
    "older_than": "older than",
    "processed": "applied",
    "claims": "claims",
    "history": "history",
    "suspects": "suspects",
    "parked": "parked (kept)",
}


def _duration(_context: click.Context, _parameter: click.Parameter, text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("purge", short_help="Remove the ledger's old records now.")
@click.argument("consumer", required=False)
@click.option(
    "--older-than",
    callback=_duration,
    metavar="DURATION",
    help="Such as 30d. Default: the consumer's `keep`.",
)
@signed
@json_option
@app_option
def purge(
    consumer: str | None,
    older_than: timedelta | None,
    files: Sequence[Path],
    *,
    operator: Operator,
    as_json: bool,
) -> None:
    """Delete ledger records of CONSUMER (of all consumers if none is named) that are no longer needed.

    A running app does this by itself; the command is for one that is not running, or to remove more. Rows go in
    small batches, around those that are locked, so running consumers are not disturbed.

    Parked messages have not taken effect yet: they are counted, and stay. So do states and the numbers of `sequence`, one
    row for each key: a key that was forgotten would start again, and apply again what is late, or wait for its first
    number without end. What `oncemq.idempotent_requests` remembers is purged by its own processes, which know how long it is kept.

    Records in generations (`ledger: {generations: 1d}`) go as whole tables: a generation of which every record is old is no
    longer looked up, and its table is dropped a minute later, by the running app or by the next purge.

    What has been purged is applied again if it is redelivered, so an age below the longest time that a
    message's retries can take is refused.
    """
    plan = load(files).plan
    if plan.engine is None:
        raise ConfigError(["the app has no database, so there is nothing to purge"])
    consumers = chosen_consumers(plan, consumer)
    ages = [(target, _age(plan, target, older_than)) for target in consumers]
    opened(plan)
    trail = Trail(plan, operator, "purge")
    rows = [_purged(plan, target, age, trail) for target, age in ages]
    columns = {**COLUMNS, **({"generations": "generations"} if plan.generations else {})}
    Output(as_json=as_json).rows(columns, rows, none="there are no consumers")


def _age(plan: AppPlan, consumer: ConsumerPlan, older_than: timedelta | None) -> timedelta:
    if older_than is None:
        return plan.keep[consumer.scope]
    horizon = consumer.retry.horizon()
    if older_than < horizon:
        raise click.UsageError(
            f"--older-than {format_duration(older_than)} is less than the {format_duration(horizon)} that retries "
            f"of consumer {consumer.name} can take: a message that comes again would be applied again"
        )
    return older_than


def _purged(plan: AppPlan, consumer: ConsumerPlan, age: timedelta, trail: Trail) -> dict[str, Any]:
    with trail.step(consumer.scope, {"": 0}, f"older than {format_duration(age)}") as step:
        counts = {
            name: sum(_emptied(plan, engine, aged, consumer, age) for engine in plan.engines)
            for name, aged in TABLES.items()
        }
        step.count = sum(counts.values())
    if consumer.generations is not None:
        counts["generations"] = sum(_expired(engine, consumer, age) for engine in plan.engines)
    waiting = sum(_parked(engine, consumer) for engine in plan.engines)
    return {"consumer": consumer.name, "older_than": format_duration(age), **counts, "parked": waiting}


def _expired(engine: Engine, consumer: ConsumerPlan, age: timedelta) -> int:
    """Retire generations of which every record is older; a running app, or the next purge, drops their tables."""
    count = rotation.retire(engine, consumer.scope, age)
    rotation.drop_retired(engine, consumer.scope)
    return count


def _parked(engine: Engine, consumer: ConsumerPlan) -> int:
    with engine.connect() as connection:
        return parking.count(connection, consumer.scope, consumer.only_topic)


def _emptied(plan: AppPlan, engine: Engine, aged: Aged, consumer: ConsumerPlan, age: timedelta) -> int:
    if isinstance(plan.clock, LedgerClock) and plan.clock.untrusted(engine):
        ahead = format_duration(abs(plan.clock.skews[engine]))
        raise LedgerError(
            f"this machine's clock is {ahead} from the database's: set it before anything is purged"
        )
    before = plan.clock.now() - age
    total = 0
    while count := purge_batch(engine, aged, before, keep=age, scope=consumer.scope):
        total += count
        if count < BATCH:
            break
    return total
