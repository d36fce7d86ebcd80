"""Moves the states that the ledger has of a consumer into a column of the user's."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Enum, String, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from oncemq.contracts.moving import MovedBatch, MoveRules
from oncemq.ledger.records.states import TABLE
from oncemq.ledger.sql.row_locks import RowLock
from oncemq_strategies.common.entity_rows import Target

BATCH: Final = 500
"""Rows of one transaction."""


class StatesMove:
    """The states of one consumer.

    Args:
        consumer: the scope of its rows.
        target: the user's column, as `table.column`.
        table: returns the user's table.
    """

    what = "state"

    def __init__(self, consumer: str, target: str, table: Callable[[Connection], Target]) -> None:
        self.target = target
        self._consumer = consumer
        self._table = table
        # A row without a state says nothing.
        self._ours = (TABLE.c.consumer == consumer) & (TABLE.c.state != "")

    def left(self, connection: Connection) -> bool:
        """Return whether the ledger has states that nothing reads any more."""
        return connection.scalar(select(TABLE.c.consumer).where(self._ours).limit(1)) is not None

    def copy(self, connection: Connection, after: str, rules: MoveRules) -> MovedBatch:
        """Copy the next states, and lock them on both sides."""
        rows = select(TABLE.c.key, TABLE.c.state).where(self._ours, TABLE.c.key > after)
        locked = RowLock().on(rows.order_by(TABLE.c.key).limit(BATCH))
        batch = {row.key: row.state for row in connection.execute(locked)}
        if not batch:
            return MovedBatch(None)
        return _Copy(connection, self._table(connection), self.target, rules).of(batch)

    def clear(self, connection: Connection) -> int:
        """Delete the consumer's states of the ledger."""
        return connection.execute(delete(TABLE).where(TABLE.c.consumer == self._consumer)).rowcount


class _Copy:
    """One batch of states that is copied.

    Args:
        connection: the transaction.
        table: the user's.
        name: of the column, as `table.column`.
        rules: what an operator has decided.
    """

    def __init__(self, connection: Connection, table: Target, name: str, rules: MoveRules) -> None:
        self._connection = connection
        self._table = table
        self._column = table.columns[0]
        self._name = name
        self._rules = rules
        self._obstacles: list[str] = []

    def of(self, batch: dict[str, str]) -> MovedBatch:
        """Copy the states by key."""
        wanted = {}
        for key, state in batch.items():
            try:
                wanted[self._table.convert(key)] = (key, state)
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
        for value, (key, state) in wanted.items():
            if value not in current:
                missing[value] = (key, state)
                continue
            theirs = current[value].rstrip(" ") if current[value] else None
            if theirs == state:
                equal += 1
            elif theirs is None or self._rules.overwrite:
                differing[value] = (key, state)
            elif self._rules.overwrite is None:
                self._obstacles.append(
                    f"key {key!r}: the ledger says {state!r}, {self._name} says {theirs!r}"
                )
            else:
                kept += 1
        written = self._write(differing)
        inserted, given_up = self._insert(missing)
        return MovedBatch(
            next(reversed(batch)), equal, written, inserted, kept, given_up, tuple(self._obstacles)
        )

    def _write(self, rows: Mapping[Any, tuple[str, str]]) -> int:
        by_state: dict[str, list[Any]] = {}
        for value, (key, state) in rows.items():
            if self._fits(key, state):
                by_state.setdefault(state, []).append(value)
        for state in sorted(by_state):
            change = update(self._table.table).where(self._table.among(by_state[state]))
            self._connection.execute(change.values({self._column: state}))
        return sum(map(len, by_state.values()))

    def _insert(self, rows: Mapping[Any, tuple[str, str]]) -> tuple[int, int]:
        """Insert missing rows, or give them up; returns how many of each."""
        if self._rules.insert is False:
            return 0, len(rows)
        if self._rules.insert is None:
            self._obstacles += [
                f"key {key!r}: {self._table.table.fullname} has no row for the state {state!r}"
                for key, state in rows.values()
            ]
            return 0, 0
        new = [
            {self._table.key.name: value, self._column.name: state}
            for value, (key, state) in rows.items()
            if self._fits(key, state)
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

    def _fits(self, key: str, state: str) -> bool:
        kind = self._column.type
        unknown = isinstance(kind, Enum) and state not in kind.enums
        longest = kind.length if isinstance(kind, String) else None
        if not unknown and (longest is None or len(state) <= longest):
            return True
        self._obstacles.append(f"key {key!r}: {self._name} cannot hold the state {state!r}")
        return False
