"""Versions in a column of the user's own table: read without a lock, compared and set together at the end of a run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from random import uniform
from typing import Any, Final

from sqlalchemy import Connection, Integer, Numeric, func, update

from oncemq.common.problems import Problem
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Culprits, Verdict, defer, retry
from oncemq.ledger.database.user_tables import UnfitTable
from oncemq.ledger.sql.row_locks import RowLock
from oncemq_strategies.common.entity_rows import Entity, EntityRows, Found, Target
from oncemq_strategies.common.table_lookup import LookedUp
from oncemq_strategies.optimistic_lock.versions_move import VersionsMove

_ABSENT: Final = object()
"""Version of a missing row."""
_PAUSE = 0.05
"""Seconds, approximately: pause before a message that lost against a rival is decided again."""


class _Notes:
    """State of one run.

    Attributes:
        found: the key column's value of each item.
        before: the version by value, of rows that exist, as they were read; None = the column is NULL.
        now: the same, changes of this run included.
        last: the item that changed it last, where that is not written yet.
        written: the version by value, of those that this run has written.
        seen: number of handlers' statements after which the version of a value was read.
        waiting: items that wait for a version to change.
    """

    __slots__ = ("before", "found", "last", "now", "seen", "waiting", "written")

    def __init__(self, found: Found) -> None:
        self.found = found
        self.before: dict[Any, int | None] = {
            value: None if version is None else int(version) for value, (_, version) in found.rows.items()
        }
        self.now = dict(self.before)
        self.last: dict[Any, Item] = {}
        self.written: dict[Any, int | None] = {}
        self.seen: dict[Any, int] = {}
        self.waiting: dict[Any, list[Item]] = {}


class Versions:
    """The user's column that holds the version.

    Args:
        scope: given to the strategy.
        entity: the table and its columns.
        column: holds the version.
        none_yet: the version of a row without one.
    """

    def __init__(self, scope: Scope, entity: Entity, column: str, none_yet: int) -> None:
        self._entity = entity
        self._none_yet = none_yet
        self.name = f"{entity.table}.{column}"
        self._consumer = scope.consumer
        self._target = LookedUp(
            scope, entity.table, entity.where, lambda connection: _look(connection, scope, entity, column)
        )
        self._rows = EntityRows(scope, entity, self._target.get)

    def check(self) -> list[Problem]:
        """Return why the table cannot be used."""
        return self._target.check()

    def moves(self, ahead: int) -> LedgerMove:
        """Return how the numbers of `sequence` in the ledger get into the column.

        Args:
            ahead: so far is a row's version beyond the number of the last message that it has seen.
        """
        return VersionsMove(self._consumer, self.name, self._target.get, ahead)

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Read the version of every key; keys without a row get a mutex where handlers create rows."""
        run.notes[self] = _Notes(self._rows.find(run, items, RowLock.none()))

    def current(self, run: Run, item: Item) -> int | Verdict | None:
        """Return the version of the item's entity, None for a row that its handler is to create, or a verdict."""
        notes: _Notes = run.notes[self]
        unfit = notes.found.unfit(self._target.get(run.connection), item)
        if unfit is not None:
            return unfit
        value = notes.found.values[item]
        if run.written != notes.seen.get(value, 0) and value not in notes.last:
            self._look_again(run, notes, value)
        if value in notes.now:
            version = notes.now[value]
            return self._none_yet if version is None else version
        return None if self._entity.missing == "run" else self._entity.absent(item)

    def change(self, run: Run, item: Item, version: int) -> None:
        """Remember the new version; the key's next item sees it."""
        notes: _Notes = run.notes[self]
        value = notes.found.values[item]
        notes.now[value] = version
        notes.last[value] = item

    def wait(self, run: Run, item: Item) -> None:
        """Have `save` verify that the version which the item waits for has not been reached."""
        notes: _Notes = run.notes[self]
        notes.waiting.setdefault(notes.found.values[item], []).append(item)

    def write(self, run: Run) -> None:
        """Compare and set the versions that earlier items of the run reached; another handler is about to read."""
        notes: _Notes = run.notes[self]
        if notes.last:
            self._settle(run, notes, {})

    def _look_again(self, run: Run, notes: _Notes, value: Any) -> None:
        """Read a row again that a handler of an earlier item may have changed."""
        notes.now.pop(value, None)
        rows = self._target.get(run.connection).read(run.connection, [value], RowLock.none())
        for key, (_, version) in rows.items():
            notes.now[key] = None if version is None else int(version)
        notes.seen[value] = run.written

    def save(self, run: Run) -> None:
        """Compare every version with the one read, all rows locked in key order, and set the new versions.

        Rows that items wait for are locked, too: a rival that sets the version without seeing the waiting item has
        committed before, and its version is seen here.

        Raises:
            Culprits: items whose row another transaction changed meanwhile, or whose handler left no row.
        """
        notes: _Notes = run.notes[self]
        if notes.last or notes.waiting:
            self._settle(run, notes, notes.waiting)

    def _settle(self, run: Run, notes: _Notes, waiting: Mapping[Any, list[Item]]) -> None:
        target = self._target.get(run.connection)
        rows = target.read(run.connection, {**notes.last, **waiting}, RowLock())
        unlike = {
            value: rows.get(value)
            for value in rows.keys() | notes.last.keys() | waiting.keys()
            if (rows[value][1] if value in rows else _ABSENT)
            != notes.written.get(value, notes.before.get(value, _ABSENT))
            or (value in notes.last and value not in rows)
        }
        if unlike:
            self._judge(run, target, notes, unlike)
        _set(run.connection, target, {value: notes.now[value] for value in notes.last}, self._none_yet, rows)
        notes.written.update((value, notes.now[value]) for value in notes.last)
        notes.last.clear()

    def _judge(self, run: Run, target: Target, notes: _Notes, unlike: Mapping[Any, Any]) -> None:
        """Raise for every row that differs from the one read, unless our own handler changed it.

        A view from outside tells which: another transaction does not see our writes yet, and while we hold the row
        nothing else can have changed it.
        """
        outside = _seen_from_outside(run.connection, target, notes, unlike)
        lost: dict[Any, Verdict] = {}
        for value, row in unlike.items():
            before = notes.before.get(value, _ABSENT)
            if outside.get(value, _ABSENT) != before:
                pause = timedelta(seconds=uniform(0.5, 1.5) * _PAUSE)  # noqa: S311 - jitter
                concerned = [notes.last[value]] if value in notes.last else notes.waiting[value]
                lost |= {
                    item: defer(pause, f"another transaction changed {target.columns[0]} meanwhile")
                    for item in concerned
                }
            elif row is None and value in notes.last:
                lost[notes.last[value]] = (
                    self._entity.not_created(value)
                    if before is _ABSENT
                    else retry(f"the handler deleted its row of {target.table}, where the version stands")
                )
        if lost:
            raise Culprits(lost)


def _look(connection: Connection, scope: Scope, entity: Entity, column: str) -> Target:
    target = Target.look(connection, scope, entity, [column])
    version = target.columns[0]
    whole = isinstance(version.type, Integer) or (
        isinstance(version.type, Numeric) and version.type.scale == 0
    )
    if not whole:
        raise UnfitTable(f"column {version} has the type {version.type}: a version is a whole number")
    return target


def _seen_from_outside(
    connection: Connection, target: Target, notes: _Notes, values: Iterable[Any]
) -> Mapping[Any, Any]:
    """Return the versions as other transactions see them."""
    if connection.dialect.name == "sqlite":  # only one transaction at a time
        return {value: version for value, version in notes.before.items() if value in set(values)}
    with connection.engine.connect() as outside:
        return {value: row[1] for value, row in target.read(outside, list(values), RowLock.none()).items()}


def _set(
    connection: Connection, target: Target, wanted: Mapping[Any, Any], none_yet: int, rows: Mapping[Any, Any]
) -> None:
    """Write the versions, one statement per distance; a whole unit usually needs one."""
    column = target.columns[0]
    by_distance: dict[int, list[Any]] = {}
    for value, version in wanted.items():
        here = rows[value][1]
        distance = version - (none_yet if here is None else int(here))
        if distance:
            by_distance.setdefault(distance, []).append(value)
    for distance, values in sorted(by_distance.items()):
        changed = update(target.table).where(target.among(values))
        connection.execute(changed.values({column: func.coalesce(column, none_yet) + distance}))
