"""Moves what the ledger has of a consumer into a column of the user's, for `oncemq tables move`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from oncemq.contracts.moving import MovedBatch, MoveRules
from oncemq.ledger.sql.row_locks import RowLock
from oncemq_strategies.common.entity_rows import Target

BATCH: Final = 500
"""Rows of one transaction."""


class ColumnMove(ABC):
    """What the ledger has of one consumer, a value for each key.

    Args:
        consumer: the scope of its rows.
        target: the user's column, as `table.column`.
        table: returns the user's table.
        of: the ledger's column; an empty text says nothing.
    """

    what: str

    def __init__(
        self, consumer: str, target: str, table: Callable[[Connection], Target], of: Column[Any]
    ) -> None:
        self.target = target
        self.ledger: Table = of.table
        self._consumer = consumer
        self._table = table
        self._of = of
        self._ours: ColumnElement[bool] = (self.ledger.c.consumer == consumer) & (of != "")

    @abstractmethod
    def wanted(self, text: str) -> Any:
        """Return what the user's column is to hold for a value of the ledger."""

    @abstractmethod
    def held(self, value: Any) -> Any:
        """Return what the user's column holds as `wanted` gives it; None = nothing yet."""

    @abstractmethod
    def fits(self, column: Column[Any], value: Any) -> bool:
        """Return whether the user's column can hold it."""

    def left(self, connection: Connection) -> bool:
        """Return whether the ledger has rows that nothing reads any more."""
        return connection.scalar(select(self.ledger.c.consumer).where(self._ours).limit(1)) is not None

    def copy(self, connection: Connection, after: str, rules: MoveRules) -> MovedBatch:
        """Copy the next rows, and lock them on both sides."""
        key = self.ledger.c.key
        rows = select(key, self._of).where(self._ours, key > after).order_by(key).limit(BATCH)
        batch = {key: self.wanted(text) for key, text in connection.execute(RowLock().on(rows))}
        if not batch:
            return MovedBatch(None)
        return _Copy(connection, self._table(connection), self, rules).of(batch)

    def clear(self, connection: Connection) -> int:
        """Delete the consumer's rows of the ledger."""
        return connection.execute(
            delete(self.ledger).where(self.ledger.c.consumer == self._consumer)
        ).rowcount


class _Copy:
    """One batch that is copied.

    Args:
        connection: the transaction.
        table: the user's.
        move: what is moved.
        rules: what an operator has decided.
    """

    def __init__(self, connection: Connection, table: Target, move: ColumnMove, rules: MoveRules) -> None:
        self._connection = connection
        self._table = table
        self._column = table.columns[0]
        self._move = move
        self._name = move.target
        self._rules = rules
        self._obstacles: list[str] = []

    def of(self, batch: dict[str, Any]) -> MovedBatch:
        """Copy the values by key."""
        wanted = {}
        for key, content in batch.items():
            try:
                wanted[self._table.convert(key)] = (key, content)
            except ValueError as error:
                self._obstacles.append(f"key {key!r} cannot be one of {self._table.key}: {error}")
        current: dict[Any, Any] = {}
        if wanted:
            found, matches = self._table.find(self._connection, list(wanted), RowLock())
            current = {value: found[place][1] for (value,), place in matches.rows.items()}
            spelled = {**matches.respelled, **matches.earlier}
            for (value,), (other,) in spelled.items():
                key, _ = wanted.pop(value)
                self._obstacles.append(f"key {key!r} is another spelling of {other!r} for {self._table.key}")
        equal, kept, differing, missing = 0, 0, {}, {}
        for value, (key, content) in wanted.items():
            if value not in current:
                missing[value] = (key, content)
                continue
            theirs = self._move.held(current[value])
            if theirs == content:
                equal += 1
            elif theirs is None or self._rules.overwrite:
                differing[value] = (key, content)
            elif self._rules.overwrite is None:
                self._obstacles.append(
                    f"key {key!r}: the ledger says {content!r}, {self._name} says {theirs!r}"
                )
            else:
                kept += 1
        written = self._write(differing)
        inserted, given_up = self._insert(missing)
        return MovedBatch(
            next(reversed(batch)), equal, written, inserted, kept, given_up, tuple(self._obstacles)
        )

    def _write(self, rows: Mapping[Any, tuple[str, Any]]) -> int:
        by_content: dict[Any, list[Any]] = {}
        for value, (key, content) in rows.items():
            if self._fits(key, content):
                by_content.setdefault(content, []).append(value)
        for content in sorted(by_content):
            change = update(self._table.table).where(self._table.among(by_content[content]))
            self._connection.execute(change.values({self._column: content}))
        return sum(map(len, by_content.values()))

    def _insert(self, rows: Mapping[Any, tuple[str, Any]]) -> tuple[int, int]:
        """Insert missing rows, or give them up; returns how many of each."""
        if self._rules.insert is False:
            return 0, len(rows)
        if self._rules.insert is None:
            self._obstacles += [
                f"key {key!r}: {self._table.table.fullname} has no row for the {self._move.what} {content!r}"
                for key, content in rows.values()
            ]
            return 0, 0
        new = [
            {self._table.key.name: value, self._column.name: content}
            for value, (key, content) in rows.items()
            if self._fits(key, content)
        ]
        try:
            with self._connection.begin_nested():
                if new:
                    self._connection.execute(insert(self._table.table), new)
        except IntegrityError as error:
            self._obstacles.append(
                f"{self._table.table.fullname} takes no row with only {self._table.key.name} and {self._column.name}: {error.orig}"
            )
            return 0, 0
        return len(new), 0

    def _fits(self, key: str, content: Any) -> bool:
        if self._move.fits(self._column, content):
            return True
        self._obstacles.append(f"key {key!r}: {self._name} cannot hold the {self._move.what} {content!r}")
        return False
