"""`unique_key`: a message takes effect once, because one row for it can be inserted once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

from sqlalchemy import MetaData, Table

from oncemq.common.problems import Problem
from oncemq.contracts.checks import ConsumerFacts
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run, Unit
from oncemq.contracts.verdict import Verdict
from oncemq.errors import RedisRefused
from oncemq.ledger.database.user_tables import UnfitTable, check_name
from oncemq.ledger.generations.registry import record_tables
from oncemq_strategies.common.fingerprint import fingerprint_option
from oncemq_strategies.common.identity_checks import check_records, check_transactional
from oncemq_strategies.common.name_template import NameTemplate
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.processed_records import ProcessedRecords
from oncemq_strategies.unique_key.also_seen import PLACE, AlsoSeen
from oncemq_strategies.unique_key.constraint_records import ConstraintRecords
from oncemq_strategies.unique_key.seen_in_redis import SeenInRedis, spelled


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
    - `also_seen_in: {redis_key: "dedup:{headers.id}", value: done}`: the same for what has a key with this value in the
      app's Redis. While Redis does not answer, the consumer pauses.
    """

    traits: ClassVar[Traits] = Traits(decides=True, per_consumer=True)

    def __init__(
        self,
        records: _Records,
        *,
        generations: bool = False,
        also_seen: AlsoSeen | SeenInRedis | None = None,
        keeps_result: bool = False,
    ) -> None:
        self._records = records
        self.keeps_result = keeps_result
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
        keeps_result = given.flag("result", default=False)
        kind: Any = _BesideRedis if isinstance(also_seen, SeenInRedis) else cls
        made: Self = kind(
            ProcessedRecords(
                scope.clock,
                fingerprint_option(given),
                result=keeps_result,
                generations=scope.generations,
                elsewhere=also_seen,
            ),
            generations=scope.generations,
            also_seen=also_seen,
            keeps_result=keeps_result,
        )
        return made

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        yield from check_transactional(facts, "unique_key")
        if isinstance(self._records, ConstraintRecords):
            yield from self._records.check()
        else:
            yield from check_records(facts, "unique_key")
        if isinstance(self._also_seen, AlsoSeen):
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


class _BesideRedis(UniqueKey):
    """The same with a look into Redis before a unit's transaction; a class of its own, as others have nothing to reserve."""

    def missing_in_redis(self) -> Iterable[RedisRefused]:
        """Yield missing permissions of the Redis user."""
        if isinstance(self._also_seen, SeenInRedis):
            yield from self._also_seen.missing()

    def reserve(self, unit: Unit) -> None:
        """Find out what another deduplicator has applied."""
        if isinstance(self._also_seen, SeenInRedis):
            self._also_seen.look(unit)


def _also_seen(given: Options, scope: Scope) -> AlsoSeen | SeenInRedis | None:
    if not given.has("also_seen_in"):
        return None
    inner = Options(PLACE, given.mapping("also_seen_in"), scope)
    inner.known("table", "columns", "where", "redis_key", "value")
    in_table, in_redis = (
        [name for name in names if inner.has(name)]
        for names in (("table", "columns", "where"), ("redis_key", "value"))
    )
    if in_table and in_redis:
        inner.refuse(
            f"{in_table[0]} is about a table, and {in_redis[0]} about Redis", "leave one of them out"
        )
    return _seen_in_redis(inner, scope) if in_redis else _seen_in_table(inner, scope)


def _seen_in_redis(inner: Options, scope: Scope) -> SeenInRedis:
    if scope.redis is None:
        inner.refuse("redis_key needs Redis", 'give the app redis: {url: "redis://localhost:6379/0"}')
    names = []
    for text in inner.names("redis_key"):
        try:
            name = NameTemplate(text, scope.expression, spelled)
        except ValueError as error:
            inner.refuse(str(error), 'write it like "dedup:{body.order_id}"', name="redis_key")
        if not name.fields:
            inner.refuse(
                f"{text!r} is one key for all messages, of which the first would make duplicates of all others",
                'write what names a message between braces: "dedup:{body.order_id}"',
                name="redis_key",
            )
        names.append(name)
    if not inner.has("value"):
        inner.refuse(
            "without `value`, a key of a message that still runs, or has failed, would make it a duplicate",
            "write what the key holds when the message was applied, such as value: CONSUMED",
        )
    value = inner.raw("value")
    values = [
        str(each) if type(each) is int else each for each in (value if isinstance(value, list) else [value])
    ]
    if not values or not all(isinstance(each, str) for each in values):
        inner.refuse(f"value must be a text or a list of texts, not {value!r}", name="value")
    return SeenInRedis(scope.redis, names, values)


def _seen_in_table(inner: Options, scope: Scope) -> AlsoSeen:
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
