"""Commands `locks list` and `locks release`: list the locks in Redis, and force the release of one, or of permits."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

import click

from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, json_option, warn
from oncemq.config import load
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.operate.auditing import Operator, Trail
from oncemq.redis import RedisClient
from oncemq_strategies.redisson.handlers.outside import HandlerLock
from oncemq_strategies.redisson.releases import found_at, take_away
from oncemq_strategies.redisson.survey.locks import LOCK, Held, all_held
from oncemq_strategies.redisson.survey.permits import SEMAPHORE, all_permits, semaphores_at

COLUMNS = {
    "name": "lock",
    "kind": "kind",
    "owner": "owner",
    "holds": "holds",
    "ends_in": "ends in (s)",
    "token": "token",
    "waiting": "waiting",
    "left": "permits left",
}
_OWNERS_NAMED = 10
WARNING = (
    "its holder is not stopped: it goes on as if it had the lock, until its watchdog notices, "
    "and another may work on the same thing meanwhile"
)


@click.command("list", short_help="List the locks that are held.")
@click.argument("pattern", default="*")
@json_option
@app_option
def list_locks(pattern: str, files: Sequence[Path], *, as_json: bool) -> None:
    """List the locks and permits that are held now, by any client, whose names match PATTERN (such as `ride-lock-*`).

    Of read-write locks each owner is listed, and of semaphores whose permits have leases each permit. The permits of other semaphores
    have no owners: those of the app's handlers are listed with what is left, and one whose whole name is PATTERN.

    Every key of the Redis is looked at, in small steps. Fair locks say how many wait for them.
    """
    plan = load(files).plan
    client = _client(plan)
    try:
        held = [*all_held(client, pattern), *all_permits(client, pattern)]
        held += _semaphores(plan, client, pattern)
    finally:
        client.close()
    rows = [asdict(each) for each in sorted(held, key=lambda each: (each.name, each.owner))]
    Output(as_json=as_json).rows(COLUMNS, rows, none="no such lock is held")


@click.command("release", short_help="Take a lock away from its holder.")
@click.argument("name")
@click.option("--owner", metavar="OWNER", help="Only what this one holds, as `locks list` shows it.")
@click.option(
    "--permits",
    type=click.IntRange(min=1),
    help="How many to give back, of a semaphore whose permits have no owners.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@signed
@app_option
def release(
    name: str, files: Sequence[Path], *, owner: str | None, permits: int | None, operator: Operator, yes: bool
) -> None:
    """Take the lock NAME away from its holder, and wake the clients that wait for it.

    Of a read-write lock every reader and writer loses it, of a semaphore whose permits have leases every permit is given back; with
    --owner only one. A semaphore without leases does not know who has its permits: say how many to give back by --permits.

    Only for a holder that is certainly dead or stuck: a lock frees itself soon after its holder has died.
    """
    plan, output = load(files).plan, Output()
    client = _client(plan)
    try:
        held = _chosen(client, name, owner, permits)
        if not held:
            output.line("no client holds this lock")
            return
        for each in held:
            output.line(str(each) if each.kind == LOCK else f"{each.kind} {each}")
        output.line(f"warning: {WARNING}")
        if not yes:
            click.confirm("Release it?" if len(held) == 1 else f"Release these {len(held)}?", abort=True)
        if plan.engine is not None:
            opened(plan)
        trail = Trail(plan, operator, "locks release", warn)
        owners = ", ".join(each.owner for each in held[:_OWNERS_NAMED] if each.owner)
        with trail.step(plan.name, {"": len(held)}, f"{name}, of {owners or f'{permits} permits'}") as step:
            step.count = sum(take_away(client, each, permits or 0) for each in held)
        output.line("released" if step.count else "it was released meanwhile")
    finally:
        client.close()


def _chosen(client: RedisClient, name: str, owner: str | None, permits: int | None) -> Sequence[Held]:
    """Return what is to be released, or refuse in words."""
    held = found_at(client, name)
    without_owners = [each for each in held if each.kind == SEMAPHORE]
    if without_owners and permits is None:
        raise click.UsageError(
            f"{name} is a semaphore with {without_owners[0].left} permits left, and knows no owners: say how many to give back, "
            "such as --permits 1"
        )
    if permits is not None and not without_owners:
        raise click.UsageError(
            f"--permits is for a semaphore whose permits have no owners, and {name} is none"
        )
    if owner is None:
        return held
    chosen = [each for each in held if each.owner == owner]
    if held and not chosen:
        known = ", ".join(each.owner for each in held[:_OWNERS_NAMED] if each.owner) or "it knows no owners"
        raise click.UsageError(f"{owner!r} does not hold {name}: {known}")
    return chosen


def _semaphores(plan: AppPlan, client: RedisClient, pattern: str) -> Iterable[Held]:
    """Return the semaphores without owners: in Redis they look like any other number."""
    found = (
        {} if set(pattern) & set("*?[") else {held.name: held for held in semaphores_at(client, [pattern])}
    )
    for consumer in plan.consumers:
        for outside in consumer.handler.outside:
            if isinstance(outside, HandlerLock):
                found |= {held.name: held for held in outside.semaphores() if fnmatchcase(held.name, pattern)}
    return found.values()


def _client(plan: AppPlan) -> RedisClient:
    client = plan.redis
    if client is None:
        raise ConfigError(['this app has no Redis: write redis: {url: "redis://localhost:6379/0"}'])
    return client
