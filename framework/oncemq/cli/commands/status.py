"""The command `status`: shows each consumer's backlog, failures and processes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from oncemq.cli.exit_codes import BROKER, FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.output import Output, counted, json_option, shown, warn
from oncemq.config import load
from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import BacklogAdapter, ConcernedAdapter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import BrokerError
from oncemq.ledger import consumer_summary
from oncemq.ledger.messages import outbox
from oncemq.operate.brokers import by_broker, prepared
from oncemq.operate.dead_letters import Filter, browsing
from oncemq.operate.letters import letters_of

MOST_LETTERS = 1000
"""Dead letters are read one by one; above this number the count is shown as `1000+`."""

COLUMNS = {
    "consumer": "consumer",
    "topic": "topic",
    "waiting": "waiting",
    "unacknowledged": "unacked",
    "retries": "retries",
    "parked": "parked",
    "next_due": "next due",
    "dead_letters": "dead letters",
    "last_applied": "last applied",
}


@dataclass(slots=True)
class _Overview:
    """Everything found for the overview.

    Args:
        consumers: one row each.
        outbox: unsent messages: messages, refused, oldest, dead_letters.
        processes: the live ones, and those without a recent heartbeat.
        problems: failed queries.
        concerns: conditions at a broker that keep messages from being read.
        notes: which figures are unknown, and how to get them.
    """

    consumers: list[dict[str, Any]]
    outbox: dict[str, Any] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    concerns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, broker: str, text: str) -> None:
        """Add a note, once."""
        if (note := f"broker {broker}: {text}") not in self.notes:
            self.notes.append(note)

    def complaints(self) -> list[str]:
        """Return the problems that an operator should look at."""
        found = list(self.concerns)
        letters = [row for row in self.consumers if row["dead_letters"]]
        if letters:
            found.append(
                f"dead letters of {', '.join(row['consumer'] for row in letters)}: `oncemq dead-letters list`"
            )
        if self.outbox.get("refused"):
            found.append(
                f"{counted(self.outbox['refused'], 'published message')} refused: `oncemq outbox list`"
            )
        if self.outbox.get("dead_letters"):
            dead = counted(self.outbox["dead_letters"], "unroutable message")
            found.append(f"{dead} kept in the outbox: `oncemq outbox list`, then retry or drop")
        waiting = [
            row["consumer"]
            for row in self.consumers
            if any(row[name] for name in ("waiting", "unacknowledged", "retries", "parked"))
        ]
        if waiting and self.outbox and not any(process["alive"] for process in self.processes):
            found.append(
                f"messages wait for {', '.join(waiting)}, and no process of the app runs: `oncemq run`"
            )
        return found


@click.command("status", short_help="Show what waits, what failed and which processes run.")
@json_option
@app_option
def status(files: Sequence[Path], *, as_json: bool) -> int:
    """Show each consumer's messages at the broker, parked messages, dead letters and when it last applied a message.

    `waiting` messages are ready to be delivered, `unacked` ones were delivered and are not settled, `retries` wait for their
    next attempt, `parked` ones for their turn; `next due` is the time of the first retry or parked message at the latest.
    A figure that the broker does not tell is a dash (null in --json). Below that: messages that wait in the outbox, and the processes of the app. It asks the brokers and the database; no process
    of the app need run.

    Exit code 0: no operator is needed. 1: dead letters, refused messages, or messages wait and no process runs. 4 or 5:
    a broker or the database cannot be reached; the others' data is shown.
    """
    plan = load(files).plan
    rows = [
        {"consumer": planned.name, "topic": planned.subscription.topic, **_UNKNOWN}
        for planned in plan.consumers
    ]
    found = _Overview(rows)
    _ask_ledger(plan, found)
    for broker, mine in by_broker(plan.consumers).items():
        try:
            with prepared(plan, broker, mine) as adapter:
                _ask_broker(plan, adapter, mine, found)
        except BrokerError as error:
            found.problems.append(f"broker {broker}: {error}")
    complaints = found.complaints()
    _print(Output(as_json=as_json), found, complaints)
    if found.problems:
        return BROKER
    return FAILED if complaints else OK


_UNKNOWN: dict[str, Any] = {
    "waiting": None,
    "unacknowledged": None,
    "retries": None,
    "parked": None,
    "next_due": None,
    "dead_letters": None,
    "last_applied": None,
}


def _ask_ledger(plan: AppPlan, found: _Overview) -> None:
    if plan.engine is None:
        return
    opened(plan)
    now = plan.clock.now()
    waits = outbox.Depth(0, None, 0)
    for engine in plan.engines:
        with engine.connect() as connection:
            for row, consumer in zip(found.consumers, plan.consumers, strict=True):
                here = consumer_summary.of_consumer(connection, consumer.scope)
                row["parked"] = (row["parked"] or 0) + here.parked
                row["next_due"] = _first(row["next_due"], here.next_due)
                row["last_applied"] = _last(row["last_applied"], here.last_applied)
            there = outbox.depth(connection, plan.name)
            waits = outbox.Depth(
                waits.messages + there.messages,
                _first(waits.oldest, there.oldest),
                waits.refused + there.refused,
                waits.dead + there.dead,
            )
    found.outbox = {
        "messages": waits.messages,
        "oldest": waits.oldest,
        "refused": waits.refused,
        "dead_letters": waits.dead,
    }
    with plan.engine.connect() as connection:
        found.processes = [
            {
                "host": process.host,
                "pid": process.pid,
                "started_at": process.started_at,
                "seen_at": process.seen_at,
                "alive": now - process.seen_at < consumer_summary.SILENT_AFTER,
            }
            for process in consumer_summary.processes(connection, plan.name)
        ]


def _ask_broker(plan: AppPlan, adapter: Adapter, consumers: Sequence[ConsumerPlan], found: _Overview) -> None:
    rows = {row["consumer"]: row for row in found.consumers}
    if isinstance(adapter, ConcernedAdapter):
        found.concerns += adapter.concerns([consumer.subscription for consumer in consumers])
    for consumer in consumers:
        row = rows[consumer.name]
        _count(adapter, consumer, row, found)
        if adapter.capabilities.browse_dead_letters:
            with browsing(letters_of(plan, adapter, consumer, warn), Filter(), MOST_LETTERS) as letters:
                count = sum(1 for _ in letters)
            row["dead_letters"] = count if count < MOST_LETTERS else f"{MOST_LETTERS}+"


def _count(adapter: Adapter, consumer: ConsumerPlan, row: dict[str, Any], found: _Overview) -> None:
    if not isinstance(adapter, BacklogAdapter):
        row["waiting"] = adapter.depth(consumer.subscription)
        if row["waiting"] is None:
            found.note(consumer.broker, "it does not tell how many messages wait")
        return
    backlog = adapter.backlog(consumer.subscription)
    row["waiting"], row["unacknowledged"] = backlog.ready, backlog.unacknowledged
    row["retries"] = backlog.retries
    row["next_due"] = _first(row["next_due"], backlog.next_retry)
    if backlog.unknown:
        found.note(consumer.broker, backlog.unknown)


def _print(output: Output, found: _Overview, complaints: list[str]) -> None:
    output.record(
        {
            "consumers": found.consumers,
            "outbox": found.outbox,
            "processes": found.processes,
            "problems": found.problems,
            "complaints": complaints,
            "notes": found.notes,
        }
    )
    if not output.as_json:
        output.rows(COLUMNS, found.consumers, none="there are no consumers")
        output.line()
        if found.outbox:
            waits, oldest = found.outbox["messages"], found.outbox["oldest"]
            output.line(
                f"outbox: {counted(waits, 'message')}" + (f", the oldest of {shown(oldest)}" if waits else "")
            )
            alive = [process for process in found.processes if process["alive"]]
            places = ", ".join(f"{process['pid']} on {process['host']}" for process in alive)
            output.line(f"processes: {len(alive)}" + (f" ({places})" if alive else ""))
        for note in found.notes:
            output.line(note)
    for text in (*found.problems, *complaints):
        warn(text)


def _first(left: datetime | None, right: datetime | None) -> datetime | None:
    return min((at for at in (left, right) if at is not None), default=None)


def _last(left: datetime | None, right: datetime | None) -> datetime | None:
    return max((at for at in (left, right) if at is not None), default=None)
