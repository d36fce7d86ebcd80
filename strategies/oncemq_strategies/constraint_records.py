"""The user's own unique constraint as the place that decides: the handler inserts the row, we look whether it is there.

Looking first is for speed and for words; the constraint is what makes it safe. When a rival in another
process inserts the same values meanwhile, the handler's insert fails with a unique violation, its unit is rolled back,
and the next try finds the rival's row: a duplicate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Select, select, tuple_

from oncemq.facts import Problem
from oncemq.ledger.user_tables import Convert, UnfitTable, column_of, converter, look_up, unique_problem
from oncemq.message.expressions import Expression
from oncemq.strategy import Scope
from oncemq.unit import Item, Run
from oncemq.verdict import DUPLICATE, PROCEED, Culprits, Verdict, reject
from oncemq_strategies.looked_up import LookedUp

Values = tuple[Any, ...]


class _Target:
    """The table, looked up."""

    def __init__(self, connection: Connection, scope: Scope, table: str, columns: Sequence[str]) -> None:
        found = look_up(connection, scope.metadata, table)
        self.columns: list[Column[Any]] = [column_of(found, name) for name in columns]
        self.converters: list[Convert] = [converter(column) for column in self.columns]
        problem = unique_problem(connection, found, columns)
        if problem:
            raise UnfitTable(problem)

    def present(self, values: Sequence[Values]) -> Select[Any]:
        """Return the query for those of `values` that have a row."""
        if len(self.columns) == 1:
            return select(*self.columns).where(self.columns[0].in_([value for (value,) in values]))
        return select(*self.columns).where(tuple_(*self.columns).in_(values))


class _Notes:
    """What one run knows about the values of its items.

    Attributes:
        values: by item; missing where the message's values do not fit.
        refused: why they do not fit.
        found: those that have a row.
        done: those whose handler ran in this run, with its item.
    """

    __slots__ = ("done", "found", "refused", "values")

    def __init__(self) -> None:
        self.values: dict[Item, Values] = {}
        self.refused: dict[Item, str] = {}
        self.found: set[Values] = set()
        self.done: dict[Values, Item] = {}


class ConstraintRecords:
    """Rows of the user's table, addressed by the columns of a unique constraint.

    Args:
        scope: what the strategy is built with.
        table: the table's name, perhaps with a schema.
        columns: expressions by column name, over exactly the columns of a unique constraint.
        required: a handler that did not insert its row fails; else its next copy runs again.
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
        """Return why the table cannot serve."""
        return self._target.check()

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Ask which of the items' values have a row."""
        target = self._target.get(run.connection)
        notes = run.notes[self] = _Notes()
        for item in items:
            try:
                notes.values[item] = self._values(target, item)
            except ValueError as error:
                notes.refused[item] = str(error)
        notes.found = _present(run.connection, target, set(notes.values.values()))

    def decide(self, run: Run, item: Item) -> Verdict:
        """Return PROCEED for values without a row."""
        notes: _Notes = run.notes[self]
        values = notes.values.get(item)
        if values is None:
            return reject(notes.refused[item])
        return DUPLICATE if values in notes.found or values in notes.done else PROCEED

    def record(self, run: Run, item: Item) -> None:
        """Remember that the handler ran for these values."""
        notes: _Notes = run.notes[self]
        if item.verdict is PROCEED and item in notes.values:
            notes.done[notes.values[item]] = item

    def save(self, run: Run) -> None:
        """Make sure that every handler inserted its row: without it nothing would stop the next copy."""
        notes: _Notes = run.notes[self]
        if not self._required or not notes.done:
            return
        present = _present(run.connection, self._target.get(run.connection), set(notes.done))
        missing = {
            item: self._not_inserted(values) for values, item in notes.done.items() if values not in present
        }
        if missing:
            raise Culprits(missing)

    def _not_inserted(self, values: Values) -> Verdict:
        named = ", ".join(f"{name}={value!r}" for name, value in zip(self._columns, values, strict=True))
        return reject(
            f"the handler ran, but {self._table} has no row with {named}: insert it in the handler, or say "
            "`required: false` if that is right"
        )

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
        return tuple(values)


def _present(connection: Connection, target: _Target, values: set[Values]) -> set[Values]:
    """Return those of `values` that have a row, compared as the database compares them."""
    if not values:
        return set()
    found, unmatched = set(), []
    for row in connection.execute(target.present(sorted(values, key=repr))):
        if tuple(row) in values:
            found.add(tuple(row))
        else:
            unmatched.append(_folded(tuple(row)))
    if unmatched:
        # MySQL's usual collations find `a ` and `A` for `a`; Python does not.
        found.update(value for value in values if _folded(value) in unmatched)
    return found


def _folded(values: Values) -> Values:
    return tuple(value.rstrip().casefold() if isinstance(value, str) else value for value in values)
