"""States in a column of the user's own table; rows are locked in key order, a missing one by a mutex."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Enum, String, update

from oncemq.common.problems import Problem
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Culprits, Verdict
from oncemq.ledger.database.user_tables import UnfitTable
from oncemq.ledger.sql.row_locks import RowLock
from oncemq_strategies.common.entity_rows import Entity, EntityRows, Found, Target
from oncemq_strategies.common.table_lookup import LookedUp
from oncemq_strategies.state_machine.states_move import StatesMove


class _Notes:
    """State of one run.

    Attributes:
        found: the key column's value of each item.
        current: the state by value, of rows that exist; changes of this run included.
        changed: states to be written, with the item that requested each.
        seen: number of handlers' statements after which the state of a value was read.
    """

    __slots__ = ("changed", "current", "found", "seen")

    def __init__(self, found: Found) -> None:
        self.found = found
        self.current: dict[Any, str | None] = {
            value: state and state.rstrip(" ")  # fixed-width columns are padded
            for value, (_, state) in found.rows.items()
        }
        self.changed: dict[Any, tuple[str, Item]] = {}
        self.seen: dict[Any, int] = {}


class EntityStates:
    """The user's column that holds the state.

    Args:
        scope: given to the strategy.
        entity: the table and its columns.
        column: holds the state; written by the strategy alone.
    """

    def __init__(self, scope: Scope, entity: Entity, column: str) -> None:
        self.name = f"{entity.table}.{column}"
        self._entity = entity
        self._target = LookedUp(
            scope, entity.table, entity.where, lambda connection: _look(connection, scope, entity, column)
        )
        self._rows = EntityRows(scope, entity, self._target.get)
        self._moves = StatesMove(scope.consumer, self.name, self._target.get)

    def check(self, wanted: Sequence[str]) -> list[Problem]:
        """Return why the table cannot be used."""
        return self._target.check(
            lambda target: _unfit_states(target.columns[0], wanted), "alter the column, or correct the states"
        )

    def moves(self) -> LedgerMove:
        """Return how states in the ledger get into the column."""
        return self._moves

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock and read the row of every key; keys without a row get a mutex and are looked up again."""
        run.notes[self] = _Notes(self._rows.find(run, items, RowLock()))

    def current(self, run: Run, item: Item) -> str | Verdict | None:
        """Return the state of the item's entity, None for no state yet, or the verdict on a missing row."""
        notes: _Notes = run.notes[self]
        unfit = notes.found.unfit(self._target.get(run.connection), item)
        if unfit is not None:
            return unfit
        value = notes.found.values[item]
        if run.written != notes.seen.get(value, 0) and value not in notes.changed:
            self._look_again(run, notes, value)
        if value in notes.current or self._entity.missing == "run":
            return notes.current.get(value)
        return self._entity.absent(item)

    def change(self, run: Run, item: Item, state: str) -> None:
        """Remember the new state; the key's next item sees it."""
        notes: _Notes = run.notes[self]
        value = notes.found.values[item]
        notes.current[value] = state
        notes.changed[value] = (state, item)

    def write(self, run: Run) -> None:
        """Write the states that earlier items of the run reached; another handler is about to read."""
        self.save(run)

    def save(self, run: Run) -> None:
        """Write the states, one statement per state; a row that is still missing fails its item."""
        notes: _Notes = run.notes[self]
        if not notes.changed:
            return
        target = self._target.get(run.connection)
        by_state: dict[str, list[Any]] = {}
        for value, (state, _) in notes.changed.items():
            by_state.setdefault(state, []).append(value)
        written = 0
        for state in sorted(by_state):
            written += run.connection.execute(
                update(target.table).where(target.among(by_state[state])).values({target.columns[0]: state})
            ).rowcount
        if written < len(notes.changed):
            self._blame(run, target, notes)
        notes.changed.clear()

    def _look_again(self, run: Run, notes: _Notes, value: Any) -> None:
        """Read a row again that a handler of an earlier item may have changed."""
        target = self._target.get(run.connection)
        notes.current.pop(value, None)
        for key, (_, state) in target.read(run.connection, [value], RowLock()).items():
            notes.current[key] = state
        notes.seen[value] = run.written

    def _blame(self, run: Run, target: Target, notes: _Notes) -> None:
        missing = set(notes.changed).difference(target.present(run.connection, notes.changed))
        raise Culprits({notes.changed[value][1]: self._entity.not_created(value) for value in missing})


def _look(connection: Connection, scope: Scope, entity: Entity, column: str) -> Target:
    target = Target.look(connection, scope, entity, [column])
    state = target.columns[0]
    if not isinstance(state.type, String):
        raise UnfitTable(f"column {state} has the type {state.type}: a state is text")
    return target


def _unfit_states(column: Column[Any], states: Collection[str]) -> str:
    """Return why the column cannot hold `states`; empty when it can."""
    kind = column.type
    if isinstance(kind, Enum):
        unknown = [state for state in states if state not in kind.enums]
        return f"column {column} does not know {', '.join(map(repr, unknown))}" if unknown else ""
    longest = max(states, key=len)
    if isinstance(kind, String) and kind.length is not None and len(longest) > kind.length:
        return f"column {column} holds {kind.length} characters, {longest!r} has {len(longest)}"
    return ""
