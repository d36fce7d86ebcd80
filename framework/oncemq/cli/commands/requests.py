"""The commands `requests list / clear`: manage requests with an unknown outcome."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from oncemq.cli import row_choice as choosing
from oncemq.cli.files import app_option
from oncemq.cli.open_app import opened_ledger
from oncemq.cli.operator_options import signed
from oncemq.cli.output import Output, confirm, counted, json_option, limit_option
from oncemq.engine.plan import AppPlan
from oncemq.ledger.records import requests as requests_unknown
from oncemq.ledger.records.requests import Chosen
from oncemq.operate.auditing import Operator, Trail, selection

COLUMNS = {"scope": "ledger", "identity": "identity", "changed_at": "since"}
WARNING = (
    "the next request with such a key is carried out: look first whether the earlier one took effect, and whether a "
    "process is still at it (one that outlasts its lease is listed, too); if it did, it takes effect twice"
)


filters = choosing.filters(
    "this identity",
    "with this Idempotency-Key, of any sender and path, or this last part of a call's key",
)


@click.group("requests", short_help="List or clear requests whose outcome is unknown.")
def requests() -> None:
    """Manage requests and calls protected by `oncemq.idempotent_requests` in the app's database, with `effects="external"`.

    If a process dies while it runs a request, or answers 5xx, the effect may have happened. Copies are refused
    from then on, until `abandoned=` finds out, until `keep` is over, or until an operator has decided.
    """


@requests.command("list", short_help="List requests whose outcome is unknown, oldest first.")
@click.argument("ledger", required=False)
@filters
@limit_option("from each database")
@json_option
@app_option
def list_unknown(
    ledger: str | None,
    ids: Sequence[str],
    key: str | None,
    limit: int,
    files: Sequence[Path],
    *,
    as_json: bool,
) -> None:
    """List requests of LEDGER, or of all ledgers, that ended without an answer.

    Running requests are not shown, unless they take longer than the ledger's `lease`; `oncemq inspect KEY`
    shows all of a key.
    """
    plan, chosen = opened_ledger(files, "knows of no requests"), Chosen(ledger, frozenset(ids), key)
    rows: list[dict[str, Any]] = []
    for engine in plan.engines:
        with engine.connect() as connection:
            rows += requests_unknown.listed(connection, chosen, plan.clock.now(), limit)
    Output(as_json=as_json).rows(COLUMNS, rows, none="no request with an unknown outcome")


@requests.command("clear", short_help="Let requests whose outcome is unknown come again.")
@click.argument("ledger", required=False)
@filters
@choosing.deciding
@signed
@json_option
@app_option
def clear_unknown(
    ledger: str | None,
    ids: Sequence[str],
    key: str | None,
    files: Sequence[Path],
    *,
    operator: Operator,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Forget requests of LEDGER (of every ledger that has them, if none is named) that ended without an answer.

    Only for those that certainly had no effect: the next request with that key runs. Leave one that took effect
    alone: copies of it stay refused. Select with --id, --key, or --all of a LEDGER.
    """
    chosen = Chosen(ledger, frozenset(ids), key)
    choosing.insist_on_choice(ids, key, everything=everything)
    if everything and ledger is None:
        raise click.UsageError(
            "name the LEDGER whose requests --all means: other apps may share the database"
        )
    plan, output = opened_ledger(files, "knows of no requests"), Output(as_json=as_json)
    click.echo(f"warning: {WARNING}", err=True)
    if not yes:
        confirm(f"Forget these requests of {ledger or 'all ledgers'}?")
    cleared, held = _cleared(plan, chosen, Trail(plan, operator, "requests clear"))
    output.record({"cleared": cleared, "being_carried_out": held})
    output.line(f"cleared {counted(cleared, 'request')}")
    if held:
        output.line(f"{counted(held, 'request')} stayed: their leases are not over")


def _cleared(plan: AppPlan, chosen: Chosen, trail: Trail) -> tuple[int, int]:
    """Return the numbers of cleared requests, and of those not unknown yet."""
    cleared = held = 0
    target = selection(ledger=chosen.ledger, id=chosen.ids, key=chosen.key)
    for engine in plan.engines:
        with engine.begin() as connection:
            now = plan.clock.now()
            count = requests_unknown.clear(connection, chosen, now)
            if count:
                trail.note(connection, plan.name, {chosen.key or "": count}, target)
            cleared += count
            held += requests_unknown.count_held(connection, chosen, now)
    return cleared, held
