"""`unique_key`: a message takes effect once, because one row for it can be inserted once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

from sqlalchemy import MetaData, Table

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Verdict
from oncemq.ledger.database.user_tables import UnfitTable, check_name
from oncemq.ledger.generations.registry import record_tables
from oncemq_strategies.common.fingerprint import fingerprint_option
from oncemq_strategies.common.identity_checks import check_records, check_transactional
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.processed_records import ProcessedRecords
from oncemq_strategies.unique_key.also_seen import PLACE, AlsoSeen
from oncemq_strategies.unique_key.constraint_records import ConstraintRecords


class _Records(Protocol):
    """Record of applied messages."""

    def load(self, run: Run, items: Sequence[Item]) -> None: ...
    def decide(self, run: Run, item: Item) -> Verdict: ...
    def record(self, run: Run, item: Item) -> None: ...
    def save(self, run: Run) -> None: ...


class UniqueKey(Strategy):
    """Record-and-check in the ledger, or by the user's own unique constraint.

    Options, all optional:

    - `fingerprint: [body.amount, …]`: the same identity with other content is a Conflict.
    - `result: true`: the handler's result (as JSON, at most 64 KiB) is kept and given to a duplicate.
    - `table: payments` with `columns: {order_id: body.order_id, payment_no: body.payment_no}`: the user's
      table decides by a unique constraint over exactly these columns; the handler inserts the row.
    - `required: false`, with `table`: a handler may omit its row.
    - `also_seen_in: {table: dedup, columns: {message_id: headers.id}, where: {status: done}}`: what has a row there was
      applied by another deduplicator, and is a duplicate.
    """

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(
        self, records: _Records, *, generations: bool = False, also_seen: AlsoSeen | None = None
    ) -> None:
        self._records = records
        self._also_seen = also_seen
        self.knows_elsewhere = also_seen is not None
        self._generations = generations
        self.second_look = isinstance(records, ConstraintRecords)
        self.by_identity = self.records_identity = not self.second_look

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("unique_key", options, scope)
        given.known("fingerprint", "result", "table", "columns", "required", "also_seen_in")
        if given.has("table") or given.has("columns"):
            return cls(_constraint(given, scope))
        if given.has("required"):
            given.refuse(
                "`required` says something about the rows of `table`, which is missing", name="required"
            )
        also_seen = _also_seen(given, scope)
        return cls(
            ProcessedRecords(
                scope.clock,
                fingerprint_option(given),
                result=given.flag("result", default=False),
                generations=scope.generations,
                elsewhere=also_seen,
            ),
            generations=scope.generations,
            also_seen=also_seen,
        )

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        yield from check_transactional(facts, "unique_key")
        if isinstance(self._records, ConstraintRecords):
            yield from self._records.check()
        else:
            yield from check_records(facts, "unique_key")
        if self._also_seen is not None:
            yield from self._also_seen.check()

    def owns(self) -> Sequence[str]:
        """Return the columns of the user's unique constraint."""
        return (self._records.name,) if isinstance(self._records, ConstraintRecords) else ()

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of processed messages, and that of its generations."""
        return record_tables(metadata, generations=self._generations)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Find out which items are new, all at once."""
        self._records.load(run, items)

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED, DUPLICATE or Conflict."""
        return self._records.decide(run, item)

    def record(self, run: Run, item: Item) -> None:
        """Remember this item for later copies in the same run."""
        self._records.record(run, item)

    def save(self, run: Run) -> None:
        """Store what is known now; remove rows of items that are not final."""
        self._records.save(run)


def _also_seen(given: Options, scope: Scope) -> AlsoSeen | None:
    if not given.has("also_seen_in"):
        return None
    inner = Options(PLACE, given.mapping("also_seen_in"), scope)
    inner.known("table", "columns", "where")
    columns, state = inner.mapping("columns"), inner.mapping("where") if inner.has("where") else {}
    try:
        table = check_name(inner.text("table"), qualified=True)
        for column in (*columns, *state):
            check_name(column)
    except UnfitTable as error:
        inner.refuse(str(error))
    both = sorted(columns.keys() & state.keys())
    if both:
        inner.refuse(f"{both[0]} stands below `columns` and below `where`", "leave it out of one of them")
    return AlsoSeen(
        scope, table, {name: inner.expression("columns", text) for name, text in columns.items()}, state
    )


def _constraint(given: Options, scope: Scope) -> ConstraintRecords:
    for other in ("fingerprint", "result", "also_seen_in"):
        if given.has(other):
            given.refuse(
                f"{other} is kept in the ledger and cannot go with `table`",
                "leave one of them out",
                name=other,
            )
    if scope.dialect == "" and scope.engine is None:
        given.refuse("`table` needs a database", "give the app a `database`", name="table")
    columns = given.mapping("columns")
    try:
        table = check_name(given.text("table"), qualified=True)
        for column in columns:
            check_name(column)
    except UnfitTable as error:
        given.refuse(str(error), name="table")
    expressions = {column: given.expression("columns", text) for column, text in columns.items()}
    return ConstraintRecords(scope, table, expressions, required=given.flag("required", default=True))
