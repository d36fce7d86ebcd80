"""Rows of the user's table that the messages' keys name: read in key order, a missing row held by a mutex."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, select
from sqlalchemy.orm import Session, lazyload

from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import RETURNED, Verdict, conflict, reject, retry
from oncemq.ledger.database.user_tables import (
    UnfitTable,
    check_name,
    column_of,
    converter,
    is_unique,
    look_up,
)
from oncemq.ledger.records.row_mutexes import lock_keys
from oncemq.ledger.sql.equality import Equality, Matches
from oncemq.ledger.sql.row_locks import RowLock
from oncemq_strategies.common.options import Options


@dataclass(frozen=True, slots=True)
class Entity:
    """Table that holds the entities that messages are about.

    Args:
        table: the table's name, perhaps with a schema.
        key: the column that holds the message's key; unique.
        missing: policy for a message whose row is missing: `run` (its handler inserts the row), `retry` or `reject`.
        where: the option that says all this, for errors.
    """

    table: str
    key: str
    missing: str
    where: str

    def absent(self, item: Item) -> Verdict:
        """Return the verdict on a message for a missing row, where its handler does not create the row."""
        why = f"{self.table} has no row with {self.key} = {item.key!r}"
        return retry(why) if self.missing == "retry" else reject(why)

    def not_created(self, value: Any) -> Verdict:
        """Return the verdict on an item whose handler ran and left no row."""
        return retry(
            f"the handler ran, but {self.table} has no row with {self.key} = {value!r}: create it in the handler, "
            "or say `missing: retry` or `missing: reject`"
        )


def entity_of(given: Options, name: str, scope: Scope, *more: str) -> tuple[Entity, list[str]]:
    """Return the entity that the option `entity` describes, and the columns named by its entries `more`.

    Args:
        given: the strategy's options.
        name: the strategy's registry name.
        scope: given to the strategy.
        more: entries that name further columns, all of them required.
    """
    inner = Options(f"{name}.entity", given.mapping("entity"), scope)
    inner.known("table", "key", *more, "missing")
    try:
        entity = Entity(
            table=check_name(inner.text("table"), qualified=True),
            key=check_name(inner.text("key")),
            missing=missing_policy(inner),
            where=f"{name}.entity",
        )
        columns = [check_name(inner.text(column)) for column in more]
    except UnfitTable as error:
        inner.refuse(str(error))
    return entity, columns


def missing_policy(given: Options) -> str:
    """Return the policy for missing rows; `insert` is a synonym of `run`."""
    chosen = given.choice("missing", ["run", "insert", "retry", "reject"], "run")
    return "run" if chosen == "insert" else chosen


class Target:
    """The table as found in the database.

    Args:
        connection: to look with.
        table: as the database or a mapped class describes it.
        key: the name of the column that holds the message's key.
        columns: names of the columns that are read; None = all.
        model: read objects of this mapped class instead.

    Raises:
        UnfitTable: a column is missing, or the key does not name one row.
    """

    def __init__(
        self,
        connection: Connection,
        table: Table,
        key: str,
        columns: Sequence[str] | None = None,
        model: type | None = None,
    ) -> None:
        self.table = table
        self.key: Column[Any] = column_of(table, key)
        names = [column.key for column in table.columns if column.key != key] if columns is None else columns
        self.columns: list[Column[Any]] = [column_of(table, name) for name in names]
        self.model = model
        self.equality = Equality(connection, table, [self.key])
        self._convert = converter(self.key)
        if not is_unique(connection, table, self.key.name):
            raise UnfitTable(
                f"column {self.key} is not unique: a key must name one row; add a unique constraint"
            )

    @classmethod
    def look(
        cls, connection: Connection, scope: Scope, entity: Entity, columns: Sequence[str] | None
    ) -> Self:
        """Return the target as the database describes it; raises as the constructor."""
        return cls(connection, look_up(connection, scope.metadata, entity.table), entity.key, columns)

    @property
    def folds(self) -> Sequence[str]:
        """Return the differences that the key column ignores; empty if it compares character by character."""
        return self.equality.folds

    def convert(self, value: Any) -> Any:
        """Return a message's value as the key column holds it.

        Raises:
            ValueError: the column cannot hold it, or would cut it.
        """
        key = self._convert(value)
        self.equality.fit([key])
        return key

    def among(self, values: Collection[Any]) -> ColumnElement[bool]:
        """Return the condition for the rows with these values of the key column."""
        return self.equality.among([(value,) for value in sorted(values)])

    def find(
        self,
        reader: Connection | Session,
        values: Collection[Any],
        lock: RowLock,
        connection: Connection | None = None,
    ) -> tuple[list[Any], Matches]:
        """Return the existing rows, and which value names which of them.

        Args:
            reader: the transaction; a session where objects are read.
            values: the key column's values, each once, in arrival order.
            lock: whether and how the rows stay locked until the transaction ends, in key order.
            connection: the session's; for a connection itself.
        """
        rows: Select[Any] = select(self.key, *(self.columns if self.model is None else [self.model]))
        if self.model is not None:
            rows = rows.options(
                lazyload("*")
            )  # a joined table would be locked, too, where that is possible at all
        rows = lock.on(rows.where(self.among(values)).order_by(self.key))
        found = list(reader.execute(rows, execution_options={"populate_existing": True}))
        return found, self.match(connection or reader, values, [row[0] for row in found])  # type: ignore[arg-type]

    def match(self, connection: Connection, values: Collection[Any], keys: Sequence[Any]) -> Matches:
        """Return which value names which of the rows with these keys."""
        return self.equality.match(connection, [(value,) for value in values], [(key,) for key in keys])

    def read(
        self,
        reader: Connection | Session,
        values: Collection[Any],
        lock: RowLock,
        connection: Connection | None = None,
    ) -> dict[Any, Any]:
        """Return the existing rows by the value that names them; see `find`."""
        if not values:
            return {}
        found, matches = self.find(reader, values, lock, connection)
        return {value: found[place] for (value,), place in matches.rows.items()}

    def present(self, connection: Connection, values: Collection[Any]) -> set[Any]:
        """Return those of `values` that have a row, locked or not."""
        if not values:
            return set()
        keys = list(connection.execute(select(self.key).where(self.among(values))).scalars())
        return {value for (value,) in self.match(connection, values, keys).rows}


class Found:
    """Rows of the items of one run.

    Attributes:
        values: the key column's value of each item; missing where the key does not fit.
        rows: the rows by value, of those that exist; the key comes first.
        taken: values whose row exists, but is locked by another transaction.
    """

    __slots__ = ("_earlier", "_refused", "_respelled", "rows", "taken", "values")

    def __init__(self, target: Target, items: Sequence[Item]) -> None:
        self.values: dict[Item, Any] = {}
        self.rows: dict[Any, Any] = {}
        self.taken: set[Any] = set()
        self._refused: dict[Item, str] = {}
        self._respelled: dict[Any, Any] = {}
        self._earlier: set[Any] = set()
        for item in items:
            try:
                self.values[item] = target.convert(item.key)
            except ValueError as error:
                self._refused[item] = str(error)

    def wanted(self) -> list[Any]:
        """Return the values of all items, each once, in arrival order."""
        return list(dict.fromkeys(self.values.values()))

    def read(
        self,
        target: Target,
        values: Collection[Any],
        lock: RowLock,
        reader: Connection | Session,
        connection: Connection,
    ) -> None:
        """Read the rows of `values`; see `Target.find`."""
        if not values:
            return
        self._earlier = {value for (value,) in self._find(target, values, lock, reader, connection).earlier}

    def read_again(
        self, target: Target, values: Collection[Any], lock: RowLock, connection: Connection
    ) -> None:
        """Read the rows of `values` as the transaction sees them now; which value comes first of two spellings stays."""
        for value in values:
            self.rows.pop(value, None)
            self._respelled.pop(value, None)
        self._find(target, values, lock, connection, connection)

    def _find(
        self,
        target: Target,
        values: Collection[Any],
        lock: RowLock,
        reader: Connection | Session,
        connection: Connection,
    ) -> Matches:
        found, matches = target.find(reader, values, lock, connection)
        self.rows.update((value, found[place]) for (value,), place in matches.rows.items())
        self._respelled.update((value, row) for (value,), (row,) in matches.respelled.items())
        return matches

    def respelled(self, target: Target, item: Item) -> str:
        """Return why an item is not about the row that the database finds for its key; empty if it is."""
        value = self.values.get(item)
        if value not in self._respelled:
            return ""
        return (
            f"key {item.key!r} is another spelling of {self._respelled[value]!r}, which is a row of {target.table.fullname}: "
            f"{target.folds[0] if target.folds else 'the database holds them equal'}"
        )

    def unfit(self, target: Target, item: Item) -> Verdict | None:
        """Return the verdict on an item whose key cannot be in the key column, or is another spelling of a value."""
        if item not in self.values:
            return reject(f"key {item.key!r} cannot be one of {target.key}: {self._refused[item]}")
        why = self.respelled(target, item)
        if why:
            return conflict(why)
        # Whether the message with the other spelling creates the row is known in the next unit.
        return RETURNED if self.values[item] in self._earlier else None


class EntityRows:
    """The rows of an entity's table, for whole runs.

    Args:
        scope: given to the strategy.
        entity: the table and its columns.
        target: returns the table.
    """

    def __init__(self, scope: Scope, entity: Entity, target: Callable[[Connection], Target]) -> None:
        self._scope = scope
        self._entity = entity
        self._target = target

    def find(self, run: Run, items: Sequence[Item], lock: RowLock) -> Found:
        """Read the row of every key; where handlers create missing rows, those get a mutex and are looked up again."""
        target = self._target(run.connection)
        reader = run.connection if target.model is None else run.session
        found = Found(target, items)
        wanted = found.wanted()
        with lock.waiting(run.connection):
            self._read(run, reader, wanted, lock, found)
            missing = [value for value in wanted if value not in found.rows and value not in found.taken]
            if missing and self._entity.missing == "run":
                names = [str(value) for value in missing]
                lock_keys(run.connection, target.table.fullname, names, at=self._scope.clock.now())
                self._read(run, reader, missing, lock, found)
        return found

    def _read(
        self, run: Run, reader: Connection | Session, values: Collection[Any], lock: RowLock, found: Found
    ) -> None:
        target = self._target(run.connection)
        found.read(target, values, lock, reader, run.connection)
        if lock.skips:
            found.taken |= target.present(run.connection, set(values).difference(found.rows))
