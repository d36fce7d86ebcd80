"""Records of another deduplicator in the app's database, which count while a group changes over; they are only read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, select

from oncemq.common.problems import Problem
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Outcome, Verdict
from oncemq.ledger.database.user_tables import Convert, UnfitTable, column_of, comparer, converter, look_up
from oncemq.ledger.sql.equality import Equality, Values
from oncemq.message.expressions import Expression
from oncemq_strategies.common.table_lookup import LookedUp

PLACE = "unique_key.also_seen_in"


class _Rows:
    """The table as found in the database.

    Args:
        connection: for reading it.
        scope: given to the strategy.
        table: its name.
        columns: those that name a message.
        state: values that other columns must have.
    """

    folds: Sequence[str] = ()
    """Nothing is to be said of its columns' comparison: only equal spellings count."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        table: str,
        columns: Sequence[str],
        state: Mapping[str, Any],
    ) -> None:
        found = look_up(connection, scope.metadata, table)
        self._columns: list[Column[Any]] = [column_of(found, name) for name in columns]
        self.converters: list[Convert] = [converter(column) for column in self._columns]
        self._equality = Equality(connection, found, self._columns)
        self._state: list[ColumnElement[bool]] = []
        for name, value in state.items():
            column = column_of(found, name)
            try:
                self._state.append(column == comparer(column)(value))
            except ValueError as error:
                raise UnfitTable(f"column {name} cannot have the value {value!r}: {error}") from None
        # An account that may not read it is told now.
        connection.execute(select(*self._columns).where(*self._state).limit(0))

    def fits(self, values: Values) -> bool:
        """Return whether the columns can hold these values unchanged."""
        try:
            self._equality.fit(values)
        except ValueError:
            return False
        return True

    def present(self, connection: Connection, wanted: Sequence[Values]) -> set[Values]:
        """Return which of these have a row that spells them the same."""
        if not wanted:
            return set()
        rows = select(*self._columns).where(self._equality.among(sorted(wanted, key=repr)), *self._state)
        found = self._equality.match(connection, wanted, list(map(tuple, connection.execute(rows))))
        return {values for values in found.rows if values not in found.respelled}


class AlsoSeen:
    """Asks a table that another deduplicator writes whether a message was applied there.

    Args:
        scope: given to the strategy.
        table: the table's name, perhaps with a schema.
        columns: expressions by column name, which together name a message.
        state: values by column name that say that it was applied, such as its status.
    """

    def __init__(
        self, scope: Scope, table: str, columns: Mapping[str, Expression], state: Mapping[str, Any]
    ) -> None:
        self._columns = columns
        self._verdict = Verdict(Outcome.DUPLICATE, f"seen in {table}", tier="database")
        self._rows = LookedUp(
            scope,
            table,
            PLACE,
            lambda connection: _Rows(connection, scope, table, list(columns), state),
            "create it, name another one, or remove the option when the change-over is done",
        )

    def check(self) -> list[Problem]:
        """Return why the table cannot be used."""
        return self._rows.check()

    def seen(self, run: Run, items: Iterable[Item]) -> dict[str, Verdict]:
        """Return a verdict for each identity that was applied there, in one statement.

        A message without a value for each column, or with one that its column cannot hold, has no row there.
        """
        rows = self._rows.get(run.connection)
        wanted: dict[Values, list[str]] = {}
        for item in items:
            values = self._values(rows, item)
            if values is not None:
                wanted.setdefault(values, []).append(item.envelope.identity)
        present = rows.present(run.connection, list(wanted))
        return {identity: self._verdict for values in present for identity in wanted[values]}

    def _values(self, rows: _Rows, item: Item) -> Values | None:
        message, payload = item.delivery.message, item.payload
        values = []
        for expression, convert in zip(self._columns.values(), rows.converters, strict=True):
            value = expression(message, payload)
            if value is None:
                return None
            try:
                values.append(convert(value))
            except ValueError:
                return None
        found = tuple(values)
        return found if rows.fits(found) else None
