"""The user's own unique constraint as the authority: the handler inserts the row, the strategy checks that it exists.

Checking first is for speed and for clear errors; the constraint gives the guarantee. When a rival in another
process inserts the same values meanwhile, the handler's insert fails with a unique violation, its unit is rolled back,
and the next try finds the rival's row: a duplicate.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, select

from oncemq.common.problems import Problem
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import (
    DUPLICATE_IN_DATABASE,
    DUPLICATE_IN_UNIT,
    PROCEED,
    RETURNED,
    Culprits,
    Verdict,
    conflict,
    reject,
)
from oncemq.ledger.database.user_tables import (
    Convert,
    UnfitTable,
    column_of,
    converter,
    look_up,
    unique_problem,
)
from oncemq.ledger.sql.equality import Equality, Matches, Values
from oncemq.message.expressions import Expression
from oncemq_strategies.common.table_lookup import LookedUp


class _Target:
    """The table as found in the database."""

    def __init__(self, connection: Connection, scope: Scope, table: str, columns: Sequence[str]) -> None:
        found = look_up(connection, scope.metadata, table)
        self.columns: list[Column[Any]] = [column_of(found, name) for name in columns]
        self.converters: list[Convert] = [converter(column) for column in self.columns]
        self._equality = Equality(connection, found, self.columns)
        problem = unique_problem(connection, found, columns)
        if problem:
            raise UnfitTable(problem)

    @property
    def folds(self) -> Sequence[str]:
        """Return the differences ignored by each column that does not compare character by character."""
        return self._equality.folds

    def fit(self, values: Values) -> Values:
        """Return `values`, unless the columns would truncate them.

        Raises:
            ValueError: a column would truncate its value.
        """
        self._equality.fit(values)
        return values

    def present(self, connection: Connection, values: Iterable[Values]) -> Matches:
        """Return which of `values` have a row."""
        wanted = list(dict.fromkeys(values))
        if not wanted:
            return Matches({}, {}, {})
        rows = select(*self.columns).where(self._equality.among(sorted(wanted, key=repr)))
        return self._equality.match(connection, wanted, list(map(tuple, connection.execute(rows))))


class _Notes:
    """State of one run: the values of its items.

    Attributes:
        values: by item; missing where the message's values do not fit.
        refused: why they do not fit.
        found: values that have a row.
        done: values whose handler ran in this run, with its item.
    """

    __slots__ = ("done", "found", "refused", "values")

    def __init__(self) -> None:
        self.values: dict[Item, Values] = {}
        self.refused: dict[Item, str] = {}
        self.found = Matches({}, {}, {})
        self.done: dict[Values, Item] = {}


class ConstraintRecords:
    """Rows of the user's table, addressed by the columns of a unique constraint.

    Args:
        scope: given to the strategy.
        table: the table's name, perhaps with a schema.
        columns: expressions by column name, over exactly the columns of a unique constraint.
        required: a handler that did not insert its row fails; otherwise its next copy runs again.
    """

    def __init__(
        self, scope: Scope, table: str, columns: Mapping[str, Expression], *, required: bool
    ) -> None:
        self.name = f"{table}.({', '.join(sorted(columns))})"
        self._table = table
        self._columns = columns
        self._required = required
        self._target = LookedUp(
            scope,
            table,
            "unique_key.table",
            lambda connection: _Target(connection, scope, table, list(columns)),
            "create a unique constraint over exactly the columns",
        )

    def check(self) -> list[Problem]:
        """Return why the table cannot be used."""
        return self._target.check()

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Find which of the items' values have a row."""
        target = self._target.get(run.connection)
        notes = run.notes[self] = _Notes()
        for item in items:
            try:
                notes.values[item] = self._values(target, item)
            except ValueError as error:
                notes.refused[item] = str(error)
        notes.found = target.present(run.connection, notes.values.values())

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED for values without a row, Conflict for another spelling of a row's."""
        notes: _Notes = run.notes[self]
        values = notes.values.get(item)
        if values is None:
            return reject(notes.refused[item])
        if values in notes.found.respelled:
            return conflict(self._respelled(run, values, notes.found.respelled[values]))
        if values in notes.found.earlier:
            return (
                RETURNED  # whether the message with the other spelling leaves a row is known in the next unit
            )
        if values in notes.done:
            return DUPLICATE_IN_UNIT
        return DUPLICATE_IN_DATABASE if values in notes.found.rows else PROCEED

    def record(self, run: Run, item: Item) -> None:
        """Remember that the handler ran for these values."""
        notes: _Notes = run.notes[self]
        if item.verdict is PROCEED and item in notes.values:
            notes.done[notes.values[item]] = item

    def save(self, run: Run) -> None:
        """Verify that every handler inserted its row: without it nothing would stop the next copy."""
        notes: _Notes = run.notes[self]
        if not self._required or not notes.done:
            return
        present = self._target.get(run.connection).present(run.connection, notes.done)
        missing = {
            item: self._not_inserted(values)
            for values, item in notes.done.items()
            if values not in present.rows
        }
        for values, row in present.respelled.items():
            stored = f"the handler stored another spelling: {self._respelled(run, values, row)}"
            missing[notes.done[values]] = reject(stored)
        if missing:
            raise Culprits(missing)

    def _not_inserted(self, values: Values) -> Verdict:
        return reject(
            f"the handler ran, but {self._table} has no row with {self._named(values)}: insert it in the handler, or say "
            "`required: false` if that is right"
        )

    def _respelled(self, run: Run, values: Values, row: Values) -> str:
        folds = "; ".join(self._target.get(run.connection).folds) or "the database holds them equal"
        return f"{self._named(values)} is another spelling of {self._named(row)}, a row of {self._table}: {folds}"

    def _named(self, values: Values) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in zip(self._columns, values, strict=True))

    def _values(self, target: _Target, item: Item) -> Values:
        message, payload = item.delivery.message, item.payload
        values = []
        for name, expression, convert in zip(
            self._columns, self._columns.values(), target.converters, strict=True
        ):
            value = expression(message, payload)
            if value is None:
                raise ValueError(
                    f"{self._table}.{name} would be NULL: a unique constraint does not hold for NULL"
                )
            values.append(convert(value))
        return target.fit(tuple(values))
