"""The command `inspect`: everything that is known about one business key."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Connection, select

from oncemq.cli.dead_letters import Filter, found_letters, row_of
from oncemq.cli.files import app_option
from oncemq.cli.letters import EVERYTHING
from oncemq.cli.opened import by_broker, chosen_consumers, opened
from oncemq.cli.output import Output, json_option, warn
from oncemq.config import load
from oncemq.errors import BrokerError
from oncemq.ledger import claims, history, outbox, parking, processed, requests, states, suspects
from oncemq.run.plan import AppPlan, ConsumerPlan

SECTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "processed": (
        "processed",
        {"consumer": "consumer", "identity": "identity", "processed_at": "at", "result": "result"},
    ),
    "claims": (
        "claims on effects outside the database",
        {
            "consumer": "consumer",
            "identity": "identity",
            "state": "state",
            "until": "until",
            "done_at": "done at",
            "result": "result",
            "reason": "reason",
        },
    ),
    "states": ("states", {"consumer": "consumer", "state": "state", "changed_at": "since"}),
    "strategies": ("strategies", {"consumer": "consumer", "strategy": "strategy", "what": "", "value": ""}),
    "parked": (
        "parked",
        {
            "consumer": "consumer",
            "number": "number",
            "identity": "identity",
            "attempt": "attempt",
            "parked_at": "since",
            "due_at": "due at",
            "reason": "reason",
        },
    ),
    "history": (
        "history",
        {
            "consumer": "consumer",
            "at": "at",
            "outcome": "outcome",
            "attempt": "attempt",
            "identity": "identity",
            "reason": "reason",
        },
    ),
    "suspects": (
        "crash suspects",
        {"consumer": "consumer", "identity": "identity", "crashes": "crashes", "crashed_at": "last at"},
    ),
    "outbox": (
        "published, not sent yet",
        {
            "consumer": "consumer",
            "topic": "topic",
            "message_id": "id",
            "created_at": "since",
            "attempts": "refused",
            "due_at": "next try",
            "error": "error",
        },
    ),
    "requests": (
        "requests and calls",
        {
            "scope": "ledger",
            "identity": "identity",
            "state": "state",
            "status": "answer",
            "until": "lease until",
            "changed_at": "since",
        },
    ),
    "dead_letters": (
        "dead letters",
        {
            "consumer": "consumer",
            "id": "id",
            "reason": "reason",
            "attempts": "attempts",
            "dead_at": "at",
            "error": "error",
        },
    ),
}


@click.command("inspect", short_help="Show everything known about one business key.")
@click.argument("key")
@click.option("--consumer", help="Only what concerns this consumer.")
@json_option
@app_option
def inspect(key: str, consumer: str | None, files: Sequence[Path], *, as_json: bool) -> None:
    """Show what is known about KEY: what was applied, its state, what waits, what happened to its messages, its dead letters.

    KEY may also be the Idempotency-Key of an HTTP request, or the key of a call, that `oncemq.requests` protects in the
    app's database; with --consumer those are left out.
    """
    plan = load(files).plan
    consumers = chosen_consumers(plan, consumer)
    output = Output(as_json=as_json)
    found: dict[str, list[dict[str, Any]]] = _ledger(plan, key, consumers)
    if consumer is None:
        found["requests"] = _requests(plan, key)
    found["dead_letters"], problems = _letters(plan, key, consumers)
    output.record({"key": key, **found, "problems": problems})
    shown_one = False
    for name, (title, columns) in SECTIONS.items():
        if found.get(name) and not as_json:
            output.line(f"{title}:")
            output.rows(columns, found[name], none="")
            output.line()
            shown_one = True
    if not shown_one:
        output.line("nothing is known about this key")
    for problem in problems:
        warn(problem)


def _ledger(plan: AppPlan, key: str, consumers: Sequence[ConsumerPlan]) -> dict[str, list[dict[str, Any]]]:
    if plan.engine is None:
        return {}
    opened(plan)
    mine = {consumer.scope: consumer for consumer in consumers}
    found: dict[str, list[dict[str, Any]]] = {}
    for shard, engine in enumerate(plan.engines):
        # A published key may be another one than its publisher's, and so on any shard.
        with engine.begin() as connection:
            for name, rows in _rows(connection, plan.name, key, shard, consumers).items():
                found.setdefault(name, []).extend(rows)
    return {
        name: [_safe(row, mine[str(row["consumer"])]) for row in rows if row["consumer"] in mine]
        for name, rows in found.items()
    }


def _requests(plan: AppPlan, key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for engine in plan.engines:
        with engine.connect() as connection:
            rows += requests.of_key(connection, key)
    return rows


def _rows(
    connection: Connection, app: str, key: str, shard: int, consumers: Sequence[ConsumerPlan]
) -> dict[str, list[dict[str, Any]]]:
    return {
        "processed": processed.of_key(connection, key),
        "claims": claims.of_key(connection, key),
        "states": states.of_key(connection, key),
        "strategies": _strategies(connection, key, shard, consumers),
        "parked": parking.of_key(connection, key),
        "history": [asdict(row) for row in history.of_key(connection, key)],
        "suspects": _suspects(connection, key),
        "outbox": outbox.of_key(connection, app, key),
    }


def _strategies(
    connection: Connection, key: str, shard: int, consumers: Sequence[ConsumerPlan]
) -> list[dict[str, Any]]:
    """Return what each strategy says about the key, one row for each thing."""
    return [
        {"consumer": consumer.scope, "strategy": strategy.name, "what": what, "value": value}
        for consumer in consumers
        for strategy in consumer.parts[shard].strategies
        for what, value in strategy.inspect(connection, key).items()
    ]


def _safe(row: dict[str, Any], consumer: ConsumerPlan) -> dict[str, Any]:
    """A reason may be a handler's error, which may hold the URL that it could not reach."""
    shown = {"reason": consumer.redact(row["reason"])} if row.get("reason") else {}
    return {**row, "consumer": consumer.name, **shown}


def _suspects(connection: Connection, key: str) -> list[dict[str, Any]]:
    rows = select(suspects.TABLE).where(suspects.TABLE.c.key == key)
    return [dict(row) for row in connection.execute(rows).mappings()]


def _letters(
    plan: AppPlan, key: str, consumers: Sequence[ConsumerPlan]
) -> tuple[list[dict[str, Any]], list[str]]:
    """A broker that is away does not hide what the database knows."""
    rows, problems = [], []
    for broker, mine in by_broker(consumers).items():
        try:
            rows += [row_of(*found) for found in found_letters(plan, mine, Filter(key=key), EVERYTHING)]
        except BrokerError as error:
            problems.append(f"dead letters on broker {broker} are not known: {error}")
    return rows, problems
