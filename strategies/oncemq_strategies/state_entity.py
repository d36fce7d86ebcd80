"""States in a column of the user's own table; rows are locked in key order, a missing one by a mutex."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from sqlalchemy import Column, Connection, Enum, String, Table, select, update
from sqlalchemy.exc import SQLAlchemyError

from oncemq.errors import ConfigError
from oncemq.facts import Problem
from oncemq.ledger.connect import READ_ONLY
from oncemq.ledger.locked_rows import lock_keys
from oncemq.ledger.user_tables import (
    Convert,
    UnfitTable,
    column_of,
    converter,
    is_unique,
    look_up,
)
from oncemq.strategy import Scope
from oncemq.unit import Item, Run
from oncemq.verdict import Culprits, Verdict, reject, retry

WHERE = "state_machine.entity"


@dataclass(frozen=True, slots=True)
class Entity:
    """Where the user keeps the state.

    Args:
        table: the table's name, perhaps with a schema.
        key: the column that holds the message's key; unique.
        state: the column that holds the state; written by the strategy alone.
        missing: what a message for a missing row does: `run` (its handler creates the row), `retry` or `reject`.
    """

    table: str
    key: str
    state: str
    missing: str


class _Target:
    """The table, looked up."""

    def __init__(self, connection: Connection, scope: Scope, entity: Entity) -> None:
        self.table: Table = look_up(connection, scope.metadata, entity.table)
        self.key: Column[Any] = column_of(self.table, entity.key)
        self.state: Column[Any] = column_of(self.table, entity.state)
        self.convert: Convert = converter(self.key)
        if not isinstance(self.state.type, String):
            raise UnfitTable(f"column {self.state} has the type {self.state.type}: a state is text")
        if not is_unique(connection, self.table, entity.key):
            raise UnfitTable(
                f"column {self.key} is not unique: a key must name one row; add a unique constraint"
            )

    def unfit_states(self, states: Collection[str]) -> str:
        """Return why the column cannot hold `states`; empty when it can."""
        kind = self.state.type
        if isinstance(kind, Enum):
            unknown = [state for state in states if state not in kind.enums]
            return f"column {self.state} does not know {', '.join(map(repr, unknown))}" if unknown else ""
        longest = max(states, key=len)
        if isinstance(kind, String) and kind.length is not None and len(longest) > kind.length:
            return f"column {self.state} holds {kind.length} characters, {longest!r} has {len(longest)}"
        return ""


class _Notes:
    """What one run knows.

    Attributes:
        values: the key column's value of each item; missing where the key does not fit.
        current: the state by value, of rows that exist; changes of this run included.
        changed: what must be written, with the item that asked for it.
    """

    __slots__ = ("changed", "current", "values")

    def __init__(self) -> None:
        self.values: dict[Item, Any] = {}
        self.current: dict[Any, str | None] = {}
        self.changed: dict[Any, tuple[str, Item]] = {}


class EntityStates:
    """The user's column as the place where the state stands."""

    def __init__(self, scope: Scope, entity: Entity) -> None:
        self._scope = scope
        self._entity = entity
        self._target: _Target | None = None
        self._lock = Lock()

    def check(self, wanted: Sequence[str]) -> list[Problem]:
        """Return why the table cannot serve."""
        if self._scope.engine is None:
            return []
        try:
            with self._scope.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
                unfit = self._resolve(connection).unfit_states(wanted)
        except UnfitTable as error:
            return [Problem(str(error), where=WHERE)]
        except SQLAlchemyError as error:
            return [
                Problem(
                    f"table {self._entity.table} cannot be looked up: {type(error).__name__}", where=WHERE
                )
            ]
        return [Problem(unfit, "alter the column, or correct the states", WHERE)] if unfit else []

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock and read the row of every key; keys without a row get a mutex and are looked up again."""
        target = self._resolved(run.connection)
        notes = run.notes[self] = _Notes()
        for item in items:
            try:
                notes.values[item] = target.convert(item.key)
            except ValueError:
                continue  # `current` says why
        wanted = set(notes.values.values())
        _lock_rows(run.connection, target, wanted, notes.current)
        missing = wanted.difference(notes.current)
        if missing:
            names = [str(value) for value in missing]
            lock_keys(run.connection, target.table.fullname, names, at=self._scope.clock.now())
            _lock_rows(run.connection, target, missing, notes.current)

    def current(self, run: Run, item: Item) -> str | Verdict | None:
        """Return the state of the item's entity, None for no state yet, or what a missing row means."""
        notes: _Notes = run.notes[self]
        target = self._resolved(run.connection)
        if item not in notes.values:
            return reject(f"key {item.key!r} does not fit column {target.key} of type {target.key.type}")
        value = notes.values[item]
        if value in notes.current or self._entity.missing == "run":
            return notes.current.get(value)
        why = f"{target.table.fullname} has no row with {self._entity.key} = {item.key!r}"
        return retry(why) if self._entity.missing == "retry" else reject(why)

    def change(self, run: Run, item: Item, state: str) -> None:
        """Remember the new state; the key's next item sees it."""
        notes: _Notes = run.notes[self]
        value = notes.values[item]
        notes.current[value] = state
        notes.changed[value] = (state, item)

    def save(self, run: Run) -> None:
        """Write the states, one statement for each state; a row that still is not there is its item's fault."""
        notes: _Notes = run.notes[self]
        if not notes.changed:
            return
        target = self._resolved(run.connection)
        by_state: dict[str, list[Any]] = {}
        for value, (state, _) in notes.changed.items():
            by_state.setdefault(state, []).append(value)
        written = 0
        for state in sorted(by_state):
            rows = target.key.in_(sorted(by_state[state]))
            written += run.connection.execute(
                update(target.table).where(rows).values({target.state: state})
            ).rowcount
        if written < len(notes.changed):
            self._blame(run, target, notes)

    def _blame(self, run: Run, target: _Target, notes: _Notes) -> None:
        there = run.connection.execute(
            select(target.key).where(target.key.in_(sorted(notes.changed)))
        ).scalars()
        missing = set(notes.changed).difference(there)
        raise Culprits(
            {
                notes.changed[value][1]: retry(
                    f"the handler ran, but {target.table.fullname} has no row with {self._entity.key} = {value!r}: "
                    "create it in the handler, or say `missing: retry` or `missing: reject`"
                )
                for value in missing
            }
        )

    def _resolved(self, connection: Connection) -> _Target:
        if self._target is not None:
            return self._target
        try:
            return self._resolve(connection)
        except UnfitTable as error:
            raise ConfigError([Problem(str(error), where=WHERE)]) from None

    def _resolve(self, connection: Connection) -> _Target:
        with self._lock:
            if self._target is None:
                self._target = _Target(connection, self._scope, self._entity)
            return self._target


def _lock_rows(
    connection: Connection, target: _Target, values: Collection[Any], found: dict[Any, str | None]
) -> None:
    """Lock the rows in key order and put their states into `found`."""
    if not values:
        return
    # FOR NO KEY UPDATE on PostgreSQL: rows that refer to these by foreign key may be inserted meanwhile.
    rows = (
        select(target.key, target.state)
        .where(target.key.in_(sorted(values)))
        .order_by(target.key)
        .with_for_update(key_share=True)
    )
    found.update({value: state for value, state in connection.execute(rows) if value in values})
