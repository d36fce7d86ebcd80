"""A strategy in about 60 lines of code: one row for each message that was applied, in the handler's transaction."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlalchemy import Column, Connection, DateTime, Engine, MetaData, String, Table, delete
from sqlalchemy.dialects import postgresql, sqlite

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Scope, Strategy, Traits, UpkeepTask
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import DUPLICATE, PROCEED, Verdict
from oncemq.errors import ConfigError

INSERT = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


class AppliedOnce(Strategy):
    """Remembers which messages were applied; the row and the handler's effect commit together."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._table = _table(MetaData())

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Make one; a ConfigError names the option and says what to write."""
        if options:
            raise ConfigError(f"applied_once has no option {next(iter(options))!r} – leave it out")
        return cls(scope)

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Refuse what cannot work; `oncemq check` prints it at its place in the file."""
        if facts.dialect not in INSERT:
            yield Problem("applied_once knows PostgreSQL and SQLite alone", "use unique_key", "strategies")

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table, which `oncemq tables create` makes."""
        return (metadata.tables.get(self._table.name, _table(metadata)),)

    def upkeep(self) -> Sequence[UpkeepTask]:
        """Forget what is older than `keep`; one process does it at a time."""
        return (UpkeepTask(f"purge applied_once {self._scope.consumer}", timedelta(minutes=1), self._purge),)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Claim the identity of each message with one statement, sorted; a rival's open transaction is waited for."""
        wanted = sorted({item.envelope.identity for item in items})
        run.notes[self] = set(self._insert(run.connection, wanted)), set[str]()

    def decide(self, run: Run, item: Item) -> Verdict:
        """Let a message run whose row is new, and of which no copy has run in this unit."""
        new, used = run.notes[self]
        identity = item.envelope.identity
        return PROCEED if identity in new and identity not in used else DUPLICATE

    def record(self, run: Run, item: Item) -> None:
        """Remember what has run: its copies in this unit are duplicates."""
        if item.verdict is PROCEED:
            run.notes[self][1].add(item.envelope.identity)

    def save(self, run: Run) -> None:
        """Take back the rows of messages that did not end well: their next try must not be a duplicate."""
        new, used = run.notes[self]
        if new - used:
            mine = self._table.c.consumer == self._scope.consumer
            theirs = self._table.c.identity.in_(sorted(new - used))
            run.connection.execute(delete(self._table).where(mine, theirs))

    def _insert(self, connection: Connection, identities: Sequence[str]) -> Iterable[str]:
        now = self._scope.clock.now()
        rows = [
            {"consumer": self._scope.consumer, "identity": identity, "applied_at": now}
            for identity in identities
        ]
        insert = INSERT[connection.dialect.name](self._table).values(rows).on_conflict_do_nothing()
        return connection.execute(insert.returning(self._table.c.identity)).scalars()

    def _purge(self, engine: Engine) -> bool:
        """Return whether there may be more to do at once."""
        mine = self._table.c.consumer == self._scope.consumer
        old = self._table.c.applied_at < self._scope.clock.now() - self._scope.keep
        with engine.begin() as connection:
            connection.execute(delete(self._table).where(mine, old))
        return False


def _table(metadata: MetaData) -> Table:
    return Table(
        "applied_once",
        metadata,
        Column("consumer", String(255), primary_key=True),
        Column("identity", String(512), primary_key=True),
        Column("applied_at", DateTime(timezone=True), nullable=False),
    )
