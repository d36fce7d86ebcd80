"""`precondition`: a message runs only while the user's row still holds the values that the message states."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, MetaData, Table

from oncemq.common.problems import Problem, Severity
from oncemq.contracts.checks import ConsumerFacts, Effects
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import PROCEED, Culprits, Verdict, reject, retry, stale
from oncemq.ledger.database.user_tables import Convert, UnfitTable, check_name, comparer
from oncemq.ledger.records import row_mutexes as locked_rows
from oncemq.ledger.sql.equality import Equality
from oncemq.ledger.sql.row_locks import RowLock
from oncemq.ledger.sql.tables import attach
from oncemq.message.expressions import Expression
from oncemq_strategies.common.entity_rows import Entity, EntityRows, Found, Target, entity_of
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.table_lookup import LookedUp

_REMEMBERS = frozenset({"unique_key", "tiered", "sequence", "state_machine", "optimistic_lock", "none"})
_OTHERWISE: Mapping[str, Callable[[str], Verdict]] = {"reject": reject, "retry": retry, "stale": stale}


class _Notes:
    """State of one run.

    Attributes:
        found: the rows as they were last read.
        locked: values whose row is locked since the beginning of the run; other rows did not exist then.
        known: values whose row was read since a handler last ran: it may have changed any row.
        stated: stated values of each item's row; kept, since a handler may change its payload.
        ran: the item whose handler ran last, until it is known whether it changed its row.
    """

    __slots__ = ("found", "known", "locked", "ran", "stated")

    def __init__(self, found: Found) -> None:
        self.found = found
        self.locked = frozenset(found.rows)
        self.known = set(found.values.values())
        self.stated: dict[Item, list[Any]] = {}
        self.ran: Item | None = None


class Precondition(Strategy):
    """Compares the row right before the handler, as earlier messages left it; it is locked when the unit begins.

    Options:

    - `entity: {table: accounts, key: account_id}`: the row. `missing: run` (default; `insert` is a synonym: without
      a row nothing is compared, and the handler inserts it), `retry` or `reject`.
    - `where: {balance: body.balance_before, owner: body.owner, closed: false}`: required values of its columns; an
      expression, or a literal number, true, false or null. A value missing in the message is NULL,
      and NULL is equal to NULL.
    - `otherwise: reject` (default), `retry` or `stale`: the verdict on a message whose row holds other values.
    - `required: false`: the handler may leave all these columns unchanged. Without it such a message is
      refused, since a second copy would run as well.
    """

    traits: ClassVar[Traits] = Traits(decides=True, compares_places=True, reads_between=True)

    def __init__(
        self,
        scope: Scope,
        entity: Entity,
        where: Mapping[str, Expression],
        otherwise: Callable[[str], Verdict],
        *,
        required: bool,
    ) -> None:
        self._entity = entity
        self._where = where
        self._otherwise = otherwise
        self._required = required
        self._target = LookedUp(
            scope, entity.table, "precondition", lambda connection: _look(connection, scope, entity, where)
        )
        self._rows = EntityRows(scope, entity, lambda connection: self._target.get(connection).target)

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Build the strategy from its options."""
        given = Options("precondition", options, scope)
        given.known("entity", "where", "otherwise", "required")
        entity, _ = entity_of(given, "precondition", scope)
        where: dict[str, Expression] = {}
        for column, value in given.mapping("where").items():
            try:
                where[check_name(column)] = _value(given, value)
            except UnfitTable as error:
                given.refuse(str(error), name="where")
        otherwise = _OTHERWISE[given.choice("otherwise", list(_OTHERWISE), "reject")]
        return cls(scope, entity, where, otherwise, required=given.flag("required", default=True))

    def check(self, facts: ConsumerFacts) -> Iterable[Problem]:
        """Return why the configuration is unsafe."""
        if facts.effects is Effects.EXTERNAL:
            yield Problem(
                "precondition protects what is in the handler's database transaction; effects outside are not",
                "use two_phase or redis_flag for `effects: external`",
                "strategies",
            )
        elif not facts.dialect:
            yield Problem("precondition needs a database", "give the app a `database`", "strategies")
        if _REMEMBERS.isdisjoint(facts.strategies):
            yield Problem(
                "precondition is no memory: it runs a copy when the row holds the stated values again, and makes a dead "
                "letter of every copy before that",
                "add unique_key before it",
                "strategies",
                Severity.WARNING,
            )
        yield from self._target.check()

    def tables(self, metadata: MetaData) -> Sequence[Table]:
        """Return the table of mutexes."""
        return (attach(locked_rows.TABLE, metadata),)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock and read the row of every key."""
        run.notes[self] = _Notes(self._rows.find(run, items, RowLock()))

    def decide(self, run: Run, item: Item) -> Verdict:
        """Compare the row with the values that the message states."""
        notes: _Notes = run.notes[self]
        value = notes.found.values.get(item)
        if value is not None and value not in notes.known:
            self._look_again(run, notes, value)
        target = self._target.get(run.connection).target
        unfit = notes.found.unfit(target, item)
        if unfit is not None:
            return unfit
        row = notes.found.rows.get(value)
        stated = notes.stated[item] = [
            expression(item.delivery.message, item.payload) for expression in self._where.values()
        ]
        if row is None:
            return PROCEED if self._entity.missing == "run" else self._entity.absent(item)
        unlike = self._target.get(run.connection).unlike(run.connection, row, stated)
        if not unlike:
            return PROCEED
        return self._otherwise(f"{', '.join(unlike)} of {self._entity.table} differs for key {item.key!r}")

    def record(self, run: Run, item: Item) -> None:
        """Remember the item whose handler ran: it may have changed any row."""
        if item.verdict is PROCEED:
            notes: _Notes = run.notes[self]
            notes.ran = item
            notes.known.clear()

    def save(self, run: Run) -> None:
        """Verify that the last handler changed a stated column: otherwise nothing would stop the next copy."""
        notes: _Notes = run.notes[self]
        if self._required and notes.ran is not None:
            self._look_again(run, notes, notes.found.values[notes.ran])

    def _look_again(self, run: Run, notes: _Notes, value: Any) -> None:
        """Read the row of `value` again, and that of the item whose handler ran last: it must have changed it.

        Raises:
            Culprits: it has not.
        """
        ran, compared = notes.ran if self._required else None, self._target.get(run.connection)
        values = {value} if ran is None else {value, notes.found.values[ran]}
        # A row that did not exist when the others were locked may be that of another transaction.
        lock = RowLock.none() if values <= notes.locked else RowLock()
        notes.found.read_again(compared.target, values, lock, run.connection)
        notes.known |= values
        notes.ran = None
        if ran is None:
            return
        row = notes.found.rows.get(notes.found.values[ran])
        if row is None and self._entity.missing == "run":
            raise Culprits({ran: self._entity.not_created(notes.found.values[ran])})
        if row is not None and not compared.unlike(run.connection, row, notes.stated[ran]):
            raise Culprits({ran: self._unchanged()})

    def _unchanged(self) -> Verdict:
        return reject(
            f"the handler ran, but left {', '.join(self._where)} of {self._entity.table} as they were, so a second "
            "copy would run as well: change one of them in the handler, or say `required: false` if another "
            "strategy takes care of copies"
        )


class _Compared:
    """The table, and the comparison of each stated column."""

    def __init__(self, connection: Connection, target: Target) -> None:
        self.target = target
        self._compare: list[tuple[Convert, Equality]] = [
            (comparer(column), Equality(connection, target.table, [column])) for column in target.columns
        ]

    @property
    def folds(self) -> Sequence[str]:
        """Return the differences that the key column ignores; empty if it compares character by character."""
        return self.target.folds

    def unlike(self, connection: Connection, row: Any, stated: Sequence[Any]) -> list[str]:
        """Return the columns that do not hold the stated values; a value that does not fit the column is unlike."""
        return [
            column.name
            for column, (compare, equality), here, value in zip(
                self.target.columns, self._compare, row[1:], stated, strict=True
            )
            if not _equal(connection, compare, equality, here, value)
        ]


def _look(connection: Connection, scope: Scope, entity: Entity, where: Mapping[str, Any]) -> _Compared:
    return _Compared(connection, Target.look(connection, scope, entity, list(where)))


def _equal(connection: Connection, compare: Convert, equality: Equality, here: Any, value: Any) -> bool:
    try:
        return equality.same(connection, compare(here), compare(value))
    except ValueError:
        return False


def _value(given: Options, value: Any) -> Expression:
    if value is None or isinstance(value, bool | int | float):
        return lambda _message, _body: value
    return given.expression("where", value)
