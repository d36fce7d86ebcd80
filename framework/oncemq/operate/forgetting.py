"""Forgetting on purpose: removes what makes a message a duplicate, so that a reset, a replay or a new copy runs it again."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, Engine, MetaData

from oncemq.contracts.strategy import Strategy
from oncemq.engine.plan import AppPlan, ConsumerPlan
from oncemq.errors import ConfigError, LedgerError
from oncemq.ledger import consumer_summary
from oncemq.ledger.generations import records as generations
from oncemq.ledger.records import forgetting, history
from oncemq.ledger.records.forgetting import BATCH, Choice, Record
from oncemq.ledger.records.history import HistoryRow
from oncemq.operate.auditing import Operator, Trail, selection, tally

FORGOTTEN = "forgotten"
"""The outcome in the history."""


@dataclass(frozen=True, slots=True)
class Known:
    """A record of a consumer that would be removed.

    Args:
        consumer: the consumer's name.
        where: the ledger table, or the strategy that keeps it elsewhere.
        identity: of the message; empty for a record about the whole key.
        key: the business key.
        value: a state, number or outcome.
        at: when it was written; None where that is not known.
        busy: why it must stay for now; empty = it may go.
    """

    consumer: str
    where: str
    identity: str
    key: str
    value: str
    at: datetime | None
    busy: str = ""


class Forgetting:
    """The records of one consumer, to be looked at and then removed.

    Args:
        plan: the app, whose databases answer.
        consumer: the consumer.
        choice: selects the records.

    Raises:
        ConfigError: what the consumer decides by cannot be chosen like this.
    """

    def __init__(self, plan: AppPlan, consumer: ConsumerPlan, choice: Choice) -> None:
        self._plan = plan
        self._consumer = consumer
        self._strategies = tuple(
            strategy for shard in range(len(consumer.parts)) for strategy in consumer.strategies_on(shard)
        )
        whole = bool(choice.keys) and choice.since is None and choice.until is None
        self._choice = replace(choice, until=choice.until or plan.clock.now(), places=whole)
        self._seen: dict[Engine, list[Record]] = {}
        if not whole:
            self._insist_on_records_of_messages()

    @property
    def notes(self) -> Sequence[str]:
        """What decides beside these records and is not removed, and what should be known."""
        columns = sorted({column for strategy in self._strategies for column in strategy.owns()})
        return [
            f"{self._consumer.name} decides by {column}, too: that is your table, set it back yourself"
            for column in columns
        ]

    def look(self, limit: int = BATCH) -> Iterator[Known]:
        """Yield the records, of each database and table at most `limit`, and all that are busy; removes nothing."""
        for engine in self._plan.engines:
            with engine.connect() as connection:
                records = self._find(connection)
            self._seen[engine] = [record for record in records if record.table in forgetting.ABOUT_KEYS]
            busy = set(forgetting.unfinished(records))
            shown: Counter[str] = Counter()
            for record in records:
                shown[record.table] += 1
                if shown[record.table] <= limit or record in busy:
                    yield self._known(record, _UNFINISHED if record in busy else "")
        yield from self._elsewhere()

    def refusal(self) -> str:
        """Return why nothing can be removed while the app runs; empty = it can be."""
        if self._plan.engine is None:
            return ""
        with self._plan.engine.connect() as connection:
            return self._running(connection)

    def remove(self, operator: Operator) -> int:
        """Remove the records, in steps that are whole each; returns how many.

        Args:
            operator: who and why, for the history and the audit trail.

        Raises:
            LedgerError: a message is running; what was removed before stays removed.
        """
        busy = next((known for known in self._elsewhere() if known.busy), None)
        if busy is not None:
            raise LedgerError(f"message {busy.identity} of {busy.consumer}: {busy.busy}")
        removed, trail = 0, Trail(self._plan, operator, "forget")
        for engine in self._plan.engines:
            while count := self._step(engine, operator, trail):
                removed += count
        return removed + self._remove_elsewhere(operator, trail)

    def _step(self, engine: Engine, operator: Operator, trail: Trail) -> int:
        consumer, scope = self._consumer, self._consumer.scope
        with engine.begin() as connection:
            records = self._find(connection)
            for record in forgetting.unfinished(records):
                raise LedgerError(f"message {record.identity} of {consumer.name}: {_UNFINISHED}")
            places = [record for record in records if record.table in forgetting.ABOUT_KEYS]
            if places != self._seen.get(engine, []):
                raise LedgerError(
                    f"what {consumer.name} knows of these keys has changed meanwhile: a message of them is running; look again"
                )
            self._seen[engine] = []
            if not records:
                return 0
            identities = sorted({record.identity for record in records if record.identity})
            for strategy in self._strategies:
                strategy.forget(identities)
            flat = generations.remove(connection, scope, records) if consumer.generations else records
            forgetting.remove(connection, scope, flat)
            history.add(connection, [self._audit(record, operator) for record in records])
            trail.note(connection, scope, tally(record.key for record in records), self._target)
            # Last in the transaction: a process that starts after this waits for its commit.
            if running := self._running(connection if engine is self._plan.engine else None):
                raise LedgerError(running)
        return len(records)

    def _find(self, connection: Connection) -> list[Record]:
        scope = self._consumer.scope
        found = forgetting.find(connection, scope, self._choice)
        if self._consumer.generations is None:
            return found
        return [*generations.find(connection, scope, self._choice, BATCH), *found]

    def _running(self, connection: Connection | None) -> str:
        cached = [strategy.name for strategy in self._strategies if strategy.caches_applied]
        if not cached or self._plan.engine is None:
            return ""
        if connection is None:
            with self._plan.engine.connect() as own:
                return self._running(own)
        now = self._plan.clock.now()
        alive = [
            f"{process.pid} on {process.host}"
            for process in consumer_summary.processes(connection, self._plan.name)
            if now - process.seen_at < consumer_summary.SILENT_AFTER
        ]
        if not alive:
            return ""
        return (
            f"{self._consumer.name} uses {', '.join(cached)}, whose caches a running process could fill again with what is "
            f"forgotten: stop the app first (processes {', '.join(alive)})"
        )

    def _elsewhere(self) -> Iterator[Known]:
        """Yield what the strategies keep outside the ledger, if keys are named."""
        for strategy in self._strategies if self._choice.keys else ():
            for kept in strategy.remembered(self._choice.keys):
                yield Known(
                    self._consumer.name, strategy.name, kept.identity, kept.key, kept.value, None, kept.busy
                )

    def _remove_elsewhere(self, operator: Operator, trail: Trail) -> int:
        kept = list(self._elsewhere())
        for strategy in self._strategies:
            mine = sorted({known.identity for known in kept if known.where == strategy.name})
            if mine:
                strategy.forget(mine)
        if kept and self._plan.engine is not None:
            rows = [
                self._audit(Record(known.where, known.identity, known.key, known.value, None), operator)
                for known in kept
            ]
            with self._plan.engine.begin() as connection:
                history.add(connection, rows)
                keys = tally(known.key for known in kept)
                trail.note(connection, self._consumer.scope, keys, self._target)
        return len(kept)

    def _known(self, record: Record, busy: str) -> Known:
        return Known(
            self._consumer.name, record.table, record.identity, record.key, record.value, record.at, busy
        )

    @property
    def _target(self) -> str:
        chosen = self._choice
        return selection(
            "", key=chosen.keys, since=chosen.since, until=None if chosen.places else chosen.until
        )

    def _audit(self, record: Record, operator: Operator) -> HistoryRow:
        written = f", written {record.at.isoformat(timespec='seconds')}" if record.at is not None else ""
        value = f" {record.value}" if record.value else ""
        why = f": {operator.why}" if operator.why else ""
        return HistoryRow(
            consumer=self._consumer.scope,
            topic=self._consumer.subscription.topic,
            key=record.key,
            identity=record.identity,
            outcome=FORGOTTEN,
            reason=f"{record.table}{value}{written}, removed by {operator.who}{why}",
            attempt=0,
            at=self._plan.clock.now(),
        )

    def _insist_on_records_of_messages(self) -> None:
        places = sorted(
            _places(self._strategies) | {column for each in self._strategies for column in each.owns()}
        )
        if places:
            problem = (
                f"consumer {self._consumer.name} decides by what a key has reached ({', '.join(places)}), which no time "
                "brings back: name the keys, without --since and --until"
            )
            raise ConfigError([problem])


_UNFINISHED = (
    "it is being worked on, or its outcome is unknown; wait, or settle it with `oncemq reconcile` "
    "(--assume not-done lets it run again)"
)


def _places(strategies: Collection[Strategy]) -> set[str]:
    metadata = MetaData()
    tables = {table.name for strategy in strategies for table in strategy.tables(metadata)}
    return tables & forgetting.ABOUT_KEYS
