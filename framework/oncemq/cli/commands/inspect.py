"""The command `inspect`: shows everything known about one business key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened
from oncemq.cli.output import Output, json_option, warn
from oncemq.config import load
from oncemq.operate import inspection
from oncemq.operate.brokers import chosen_consumers

SECTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "processed": (
        "processed",
        {
            "consumer": "consumer",
            "identity": "identity",
            "processed_at": "at",
            "result": "result",
            "configuration": "configuration",
        },
    ),
    "final_failures": (
        "failed for good, on_dead has taken effect",
        {
            "consumer": "consumer",
            "identity": "identity",
            "at": "at",
            "code": "code",
            "reason": "reason",
            "configuration": "configuration",
        },
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
            "configuration": "configuration",
        },
    ),
    "states": (
        "states",
        {"consumer": "consumer", "state": "state", "changed_at": "since", "configuration": "configuration"},
    ),
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
            "waits_for": "waits for dead letter",
            "reason": "reason",
            "trace_id": "trace",
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
            "configuration": "configuration",
        },
    ),
    "configurations": (
        "configurations by the time of these records",
        {
            "version": "version",
            "number": "no.",
            "loaded_at": "loaded at",
            "occasion": "by",
            "who": "who",
            "host": "host",
        },
    ),
    "changes": (
        "changes by operators",
        {
            "consumer": "consumer",
            "at": "at",
            "action": "action",
            "who": "who",
            "target": "what",
            "affected": "count",
            "state": "state",
            "why": "why",
        },
    ),
    "paused": (
        "consumers that are paused",
        {"consumer": "consumer", "kind": "by", "who": "who", "since": "since", "why": "why"},
    ),
    "suspects": (
        "crash suspects",
        {
            "consumer": "consumer",
            "identity": "identity",
            "crashes": "crashes",
            "hard_limits": "by the hard limit",
            "crashed_at": "last at",
        },
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
            "trace_id": "trace",
        },
    ),
    "delayed": (
        "published for later",
        {
            "due_at": "due at",
            "consumer": "consumer",
            "topic": "topic",
            "message_id": "id",
            "created_at": "since",
            "trace_id": "trace",
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
            "trace_id": "trace",
        },
    ),
}
_OPTIONAL = frozenset({"trace_id", "configuration", "waits_for"})


@click.command("inspect", short_help="Show everything known about one business key.")
@click.argument("key")
@click.option("--consumer", help="Only what concerns this consumer.")
@json_option
@app_option
def inspect(key: str, consumer: str | None, files: Sequence[Path], *, as_json: bool) -> None:
    """Show everything about KEY: applied messages, its state, waiting messages, their history, its dead letters.

    KEY may also be the Idempotency-Key of an HTTP request, or the key of a call, that `oncemq.idempotent_requests` protects in the
    app's database; with --consumer those are left out.
    """
    plan = load(files).plan
    consumers = chosen_consumers(plan, consumer)
    output = Output(as_json=as_json)
    if plan.engine is not None:
        opened(plan)
    found, problems = inspection.of_key(plan, key, consumers, with_requests=consumer is None, tell=warn)
    output.record({"key": key, **found, "problems": problems})
    shown_one = False
    for name, (title, columns) in SECTIONS.items():
        if found.get(name) and not as_json:
            output.line(f"{title}:")
            output.rows(_of_use(columns, found[name]), found[name], none="")
            output.line()
            shown_one = shown_one or name != "paused"
    if not shown_one:
        output.line("nothing is known about this key")
    for problem in problems:
        warn(problem)


def _of_use(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the columns, without those that no row needs: of the trace, the configuration and the dead letter in the way."""
    used = {name for row in rows for name in row}
    return {name: title for name, title in columns.items() if name not in _OPTIONAL or name in used}
