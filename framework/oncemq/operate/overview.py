"""The state of a whole app, read from its ledger, its brokers and Redis; no process of the app need run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from oncemq.contracts.adapter import Adapter
from oncemq.contracts.broker_queries import BacklogAdapter, ConcernedAdapter
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import BrokerError
from oncemq.ledger import consumer_summary
from oncemq.ledger.consumer_summary import Recent
from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import delayed, outbox
from oncemq.operate import pausing
from oncemq.operate.brokers import by_broker, prepared
from oncemq.operate.dead_letters import Filter, browsing
from oncemq.operate.letters import Letters, Tell, letters_of

MOST_LETTERS = 1000
"""Dead letters of a broker that does not count them are read one by one; above this number the count is `1000+`."""

RECENTLY = timedelta(seconds=60)
"""The time over which rates and outcomes are counted."""

_UNKNOWN: dict[str, Any] = {
    "waiting": None,
    "unacknowledged": None,
    "retries": None,
    "parked": None,
    "next_due": None,
    "oldest_parked": None,
    "dead_letters": None,
    "last_applied": None,
    "paused": (),
    "rate": None,
    "outcomes": {},
    "duplicate_ratio": None,
}


@dataclass(slots=True)
class Overview:
    """Everything found.

    Args:
        at: when it was read, aware.
        consumers: one row each, with a value for each name of `_UNKNOWN`.
        outbox: unsent messages: messages, refused, oldest, dead_letters; those for later: delayed, next_due; empty
            without a database.
        processes: the live ones, and those without a recent heartbeat.
        redis: `answers` or the problem; empty without Redis.
        problems: failed queries.
        concerns: conditions at a broker that keep messages from being read.
        notes: which figures are unknown, and how to get them.
    """

    at: datetime
    consumers: list[dict[str, Any]]
    outbox: dict[str, Any] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    redis: str = ""
    problems: list[str] = field(default_factory=list)
    concerns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def alive(self) -> list[dict[str, Any]]:
        """The processes with a recent heartbeat."""
        return [process for process in self.processes if process["alive"]]

    def note(self, broker: str, text: str) -> None:
        """Add a note, once."""
        if (note := f"broker {broker}: {text}") not in self.notes:
            self.notes.append(note)

    def complaints(self) -> list[str]:
        """Return the problems that an operator should look at."""
        found = list(self.concerns)
        found += [
            f"{row['consumer']} is paused {pause}" + (_RESUME.format(**row) if pause.until is None else "")
            for row in self.consumers
            for pause in row["paused"]
        ]
        letters = [row for row in self.consumers if row["dead_letters"]]
        if letters:
            found.append(
                f"dead letters of {', '.join(row['consumer'] for row in letters)}: `oncemq dead-letters list`"
            )
        if self.outbox.get("refused"):
            found.append(
                f"{_messages(self.outbox['refused'], 'published message')} refused: `oncemq outbox list`"
            )
        if self.outbox.get("dead_letters"):
            dead = _messages(self.outbox["dead_letters"], "unroutable message")
            found.append(f"{dead} kept in the outbox: `oncemq outbox list`, then retry or drop")
        waiting = [
            row["consumer"]
            for row in self.consumers
            if any(row[name] for name in ("waiting", "unacknowledged", "retries", "parked"))
        ]
        if waiting and self.outbox and not self.alive:
            found.append(
                f"messages wait for {', '.join(waiting)}, and no process of the app runs: `oncemq run`"
            )
        return found


_RESUME = " – `oncemq resume {consumer}`"


def empty(plan: AppPlan) -> Overview:
    """Return an overview in which nothing is known yet."""
    rows = [
        {"consumer": planned.name, "topic": planned.subscription.topic, **_UNKNOWN}
        for planned in plan.consumers
    ]
    return Overview(plan.clock.now(), rows)


def read(plan: AppPlan, *, tell: Tell | None = None) -> Overview:
    """Return the overview, with what could not be read in `problems`; connects to each broker and disconnects.

    Args:
        plan: the app, whose databases answer.
        tell: called when some dead letters cannot be shown.

    Raises:
        SQLAlchemyError: a database does not answer.
    """
    found = empty(plan)
    ask_ledger(plan, found)
    for broker, mine in by_broker(plan.consumers).items():
        try:
            with prepared(plan, broker, mine) as adapter:
                ask_broker(plan, adapter, mine, found, tell=tell)
        except BrokerError as error:
            found.problems.append(f"broker {broker}: {error}")
    return found


def ask_ledger(plan: AppPlan, found: Overview, *, recently: timedelta | None = None) -> None:
    """Fill in what the databases know.

    Args:
        plan: the app.
        found: filled in.
        recently: count outcomes and rates over this time before now; None = leave them out.

    Raises:
        SQLAlchemyError: a database does not answer.
    """
    if plan.engine is None:
        return
    waits = outbox.Depth(0, None, 0)
    postponed, next_due = 0, None
    for engine in plan.engines:
        with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            for row, consumer in zip(found.consumers, plan.consumers, strict=True):
                flat = consumer.generations is not None
                here = consumer_summary.of_consumer(
                    connection, consumer.scope, topic=consumer.only_topic, generations=flat
                )
                row["parked"] = (row["parked"] or 0) + here.parked
                row["next_due"] = first(row["next_due"], here.next_due)
                row["oldest_parked"] = first(row["oldest_parked"], here.oldest_parked)
                row["last_applied"] = _last(row["last_applied"], here.last_applied)
                if recently is not None:
                    since = found.at - recently
                    past = consumer_summary.recent(connection, consumer.scope, since, generations=flat)
                    _add(row, past, recently)
            later = delayed.waiting(connection, plan.name, found.at)
            postponed, next_due = postponed + later.messages, first(next_due, later.next_due)
            there = outbox.depth(connection, plan.name)
            waits = outbox.Depth(
                waits.messages + there.messages,
                first(waits.oldest, there.oldest),
                waits.refused + there.refused,
                waits.dead + there.dead,
            )
    found.outbox = {
        "messages": waits.messages,
        "oldest": waits.oldest,
        "refused": waits.refused,
        "dead_letters": waits.dead,
        "delayed": postponed,
        "next_due": next_due,
    }
    paused = pausing.in_force(plan)
    for row in found.consumers:
        row["paused"] = paused.get(row["consumer"], ())
    found.processes = _processes(plan, found.at)


def _processes(plan: AppPlan, now: datetime) -> list[dict[str, Any]]:
    if plan.engine is None:
        return []
    with plan.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        rows = consumer_summary.processes(connection, plan.name)
    return [
        {
            "host": process.host,
            "pid": process.pid,
            "started_at": process.started_at,
            "seen_at": process.seen_at,
            "alive": now - process.seen_at < consumer_summary.SILENT_AFTER,
        }
        for process in rows
    ]


def ask_broker(
    plan: AppPlan,
    adapter: Adapter,
    consumers: Sequence[ConsumerPlan],
    found: Overview,
    *,
    letters: bool = True,
    tell: Tell | None = None,
) -> None:
    """Fill in what a broker knows about its consumers.

    Args:
        plan: the app.
        adapter: the broker, prepared.
        consumers: those of this broker.
        found: filled in.
        letters: count dead letters; where the broker does not, they are read one by one.
        tell: called when some dead letters cannot be shown.

    Raises:
        BrokerError: the broker does not answer.
    """
    rows = {row["consumer"]: row for row in found.consumers}
    if isinstance(adapter, ConcernedAdapter):
        found.concerns += adapter.concerns([consumer.subscription for consumer in consumers])
    for consumer in consumers:
        row = rows[consumer.name]
        _count(adapter, consumer, row, found)
        if letters and adapter.capabilities.browse_dead_letters:
            row["dead_letters"] = _letters(letters_of(plan, adapter, consumer, tell))


def _letters(found: Letters) -> int | str:
    if (counted := found.count()) is not None:
        return counted
    with browsing(found, Filter(), MOST_LETTERS, bodies=False) as browsed:
        count = sum(1 for _ in browsed)
    return count if count < MOST_LETTERS else f"{MOST_LETTERS}+"


def _count(adapter: Adapter, consumer: ConsumerPlan, row: dict[str, Any], found: Overview) -> None:
    if not isinstance(adapter, BacklogAdapter):
        row["waiting"] = adapter.depth(consumer.subscription)
        if row["waiting"] is None:
            found.note(consumer.broker, "it does not tell how many messages wait")
        return
    backlog = adapter.backlog(consumer.subscription)
    row["waiting"], row["unacknowledged"] = backlog.ready, backlog.unacknowledged
    row["retries"] = backlog.retries
    row["next_due"] = first(row["next_due"], backlog.next_retry)
    if backlog.unknown:
        found.note(consumer.broker, backlog.unknown)


def _add(row: dict[str, Any], recent: Recent, over: timedelta) -> None:
    """Add the counts of one database to a consumer's."""
    outcomes = dict(row["outcomes"])
    for outcome, count in recent.outcomes.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + count
    row["outcomes"] = outcomes
    row["rate"] = round(outcomes.get("applied", 0) / over.total_seconds(), 2)
    row["duplicate_ratio"] = ratio(outcomes)


def ratio(outcomes: Mapping[str, int]) -> float | None:
    """Return which part of the messages that were settled at once were duplicates; None without messages."""
    duplicates = outcomes.get("duplicate", 0)
    settled = duplicates + outcomes.get("applied", 0) + outcomes.get("stale", 0)
    return round(duplicates / settled, 4) if settled else None


def first(left: datetime | None, right: datetime | None) -> datetime | None:
    """Return the earlier of two moments, as far as they are known."""
    return min((at for at in (left, right) if at is not None), default=None)


def _last(left: datetime | None, right: datetime | None) -> datetime | None:
    return max((at for at in (left, right) if at is not None), default=None)


def _messages(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def record(found: Overview) -> dict[str, Any]:
    """Return the overview as one JSON object."""
    return {
        "at": found.at,
        "seconds": RECENTLY.total_seconds(),
        "consumers": [
            {**row, "state": state(row, found), "paused": [asdict(pause) for pause in row["paused"]]}
            for row in found.consumers
        ],
        "outbox": found.outbox,
        "processes": found.processes,
        "redis": found.redis or None,
        "problems": found.problems,
        "complaints": found.complaints(),
        "notes": found.notes,
    }


def state(row: dict[str, Any], found: Overview) -> str:
    """Return what a consumer does: `paused`, `no process`, `running`, or `unknown` without a ledger."""
    if row["paused"]:
        return "paused"
    if not found.outbox:
        return "unknown"
    return "running" if found.alive else "no process"
