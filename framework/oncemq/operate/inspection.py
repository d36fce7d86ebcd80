"""Inspection of one business key: in the ledger, and among the dead letters of the brokers."""

from collections.abc import Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection

from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import BrokerError
from oncemq.ledger.coordination import pauses
from oncemq.ledger.coordination.pauses import Pause
from oncemq.ledger.generations import records
from oncemq.ledger.messages import delayed, held_letters, outbox, parking
from oncemq.ledger.records import (
    audit,
    claims,
    final_failures,
    history,
    processed,
    requests,
    states,
    suspects,
)
from oncemq.operate.brokers import by_broker, one_each
from oncemq.operate.configuration.by_time import LoadedConfigurations
from oncemq.operate.dead_letters import Filter
from oncemq.operate.letter_pages import PageLimits, letter_page
from oncemq.operate.letters import EVERYTHING, Tell

Rows = dict[str, list[dict[str, Any]]]
"""Rows by subject."""


def of_key(
    plan: AppPlan,
    key: str,
    consumers: Sequence[ConsumerPlan],
    *,
    with_requests: bool = True,
    tell: Tell | None = None,
    most_letters: int = EVERYTHING,
) -> tuple[Rows, list[str]]:
    """Return all that is known about a key, and failed queries, as text.

    Args:
        plan: the app, whose databases answer.
        key: the business key.
        consumers: only these.
        with_requests: the ledger of HTTP requests and calls, too.
        tell: called when dead letters of the ledger cannot be shown.
        most_letters: of each broker's consumers, how many dead letters are looked at for the key, the oldest first.
    """
    found = _ledger(plan, key, consumers)
    if plan.engine is not None:
        found["configurations"] = LoadedConfigurations.of(plan.engine, plan.name).named_in(found)
    if with_requests:
        found["requests"] = _requests(plan, key)
    found["dead_letters"], problems = _letters(plan, key, consumers, tell, most_letters)
    return found, problems


def _ledger(plan: AppPlan, key: str, consumers: Sequence[ConsumerPlan]) -> Rows:
    if plan.engine is None:
        return {}
    mine = dict[str, list[ConsumerPlan]]()
    for consumer in consumers:
        mine.setdefault(consumer.scope, []).append(consumer)
    found: dict[str, list[dict[str, Any]]] = {}
    for shard, engine in enumerate(plan.engines):
        # A published key may differ from its publisher's, and so be on any shard.
        with engine.begin() as connection:
            for name, rows in _rows(connection, plan.name, key, shard, consumers).items():
                found.setdefault(name, []).extend(rows)
    shown = {
        name: [_safe(row, mine[str(row["consumer"])]) for row in rows if row["consumer"] in mine]
        for name, rows in found.items()
    }
    if len(consumers) == len(plan.consumers):
        # Published by a script, a web service or by hand.
        rows = [row for row in found["delayed"] if row["consumer"] not in mine]
        prefix = f"{plan.name}."
        shown["delayed"] += [{**row, "consumer": str(row["consumer"]).removeprefix(prefix)} for row in rows]
        shown["delayed"].sort(key=itemgetter("due_at"))
        # Changes of the whole app, such as messages that a script published and an operator dropped.
        shown["changes"] += [
            {**row, "consumer": ""} for row in found["changes"] if row["consumer"] not in mine
        ]
        shown["changes"].sort(key=itemgetter("at"))
    return shown


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
        "processed": [
            *processed.of_key(connection, key),
            *(
                row
                for scope in _with_generations(consumers)
                for row in records.of_key(connection, scope, key)
            ),
        ],
        "final_failures": final_failures.of_key(connection, key),
        "claims": claims.of_key(connection, key),
        "states": states.of_key(connection, key),
        "strategies": _strategies(connection, key, shard, consumers),
        "parked": _waiting(connection, key),
        "history": [asdict(row) for row in history.of_key(connection, key)],
        "suspects": suspects.of_key(connection, key),
        "outbox": outbox.of_key(connection, app, key),
        "delayed": delayed.of_key(connection, app, key),
        "changes": [asdict(row) for row in audit.of_key(connection, app, key)],
        "paused": [asdict(row) for row in _paused(connection, consumers)],
    }


def _waiting(connection: Connection, key: str) -> list[dict[str, Any]]:
    """Return the parked messages of a key, those behind a dead letter with its id."""
    behind = held_letters.waits_for(connection, key)
    shown = []
    for row in parking.of_key(connection, key):
        letter = behind(row)
        words = {name: value for name, value in row.items() if name not in {"id", "held"}}
        shown.append(words if letter is None else {**words, "waits_for": letter})
    return shown


def _with_generations(consumers: Sequence[ConsumerPlan]) -> list[str]:
    found = (consumer.scope for consumer in consumers if consumer.generations is not None)
    return list(dict.fromkeys(found))


def _strategies(
    connection: Connection, key: str, shard: int, consumers: Sequence[ConsumerPlan]
) -> list[dict[str, Any]]:
    """Return the strategies' rows about the key."""
    return [
        {"consumer": consumer.scope, "strategy": strategy.name, "what": what, "value": value}
        for consumer in one_each(consumers)
        for strategy in consumer.strategies_on(shard)
        for what, value in strategy.inspect(connection, key).items()
    ]


def _safe(row: dict[str, Any], consumers: Sequence[ConsumerPlan]) -> dict[str, Any]:
    """Redact the reason: it may be a handler's error with the URL that it could not reach; name the topic, if it is known."""
    shown = {"reason": consumers[0].redact(row["reason"])} if row.get("reason") else {}
    by_topic = {consumer.subscription.topic: consumer.name for consumer in consumers}
    return {**row, "consumer": by_topic.get(str(row.get("topic")), consumers[0].called), **shown}


def _paused(connection: Connection, consumers: Sequence[ConsumerPlan]) -> list[Pause]:
    found = pauses.of(connection, {consumer.scope for consumer in consumers})
    return [pause for each in found.values() for pause in each]


def _letters(
    plan: AppPlan, key: str, consumers: Sequence[ConsumerPlan], tell: Tell | None, most: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the dead letters; an unavailable broker does not hide the database's rows."""
    rows, problems, limits = [], [], PageLimits(EVERYTHING, most)
    for broker, mine in by_broker(consumers).items():
        try:
            page = letter_page(plan, mine, Filter(key=key), limits, tell=tell)
        except BrokerError as error:
            problems.append(f"dead letters on broker {broker} are not known: {error}")
            continue
        rows += page.rows
        if page.searched is not None:
            problems.append(
                f"only the oldest {page.searched:,} dead letters on broker {broker} were looked at for this key: "
                "`oncemq inspect` looks at all of them"
            )
    return rows, problems
