"""States in the ledger's own table, one row for each consumer and key."""

from collections.abc import Sequence

from sqlalchemy import Connection

from oncemq.common.clock import Clock
from oncemq.common.problems import Problem
from oncemq.contracts.moving import LedgerMove
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Verdict
from oncemq.errors import InfrastructureError
from oncemq.ledger.records import states
from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for

_NONE_YET = ""


class _Notes:
    """State of one run.

    Attributes:
        new: keys whose row this run inserted, without a state.
        current: the state of each key, changes of this run included.
        changed: keys to be written.
    """

    __slots__ = ("changed", "current", "new")

    def __init__(self, new: set[str]) -> None:
        self.new = new
        self.current: dict[str, str | None] = dict.fromkeys(new)
        self.changed: dict[str, str] = {}


class LedgerStates:
    """The ledger's table `oncemq_states`: rows are inserted first, then locked, so that every key can be locked."""

    name = ""
    """Empty: no column of the user's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bulk: Bulk | None = None

    def check(self, wanted: Sequence[str]) -> list[Problem]:  # noqa: ARG002 - our own table takes any state
        """Return nothing: `tables create` creates the table."""
        return []

    def moves(self) -> LedgerMove | None:
        """Return nothing: they are where they belong."""
        return None

    def load(self, run: Run, items: Sequence[Item]) -> None:
        """Lock the row of every key and read its state."""
        keys = sorted({item.key for item in items})
        bulk = self._statements(run.connection)
        rows = [(key, _NONE_YET) for key in keys]
        notes = run.notes[self] = _Notes(
            bulk.insert_new(run.connection, run.consumer, rows, self._clock.now())
        )
        old = [key for key in keys if key not in notes.new]
        if not old:
            return
        for key, (state,) in bulk.read(run.connection, run.consumer, old, lock=True).items():
            notes.current[key] = state or None
        if len(notes.current) < len(keys):
            raise InfrastructureError(f"{run.consumer}: a state was purged between two statements; run again")

    def current(self, run: Run, item: Item) -> str | Verdict | None:
        """Return the state of the item's entity; None = it has none yet."""
        notes: _Notes = run.notes[self]
        return notes.current[item.key]

    def change(self, run: Run, item: Item, state: str) -> None:
        """Remember the new state; the key's next item sees it."""
        notes: _Notes = run.notes[self]
        notes.current[item.key] = notes.changed[item.key] = state

    def write(self, run: Run) -> None:
        """Do nothing: handlers do not read our own table."""

    def save(self, run: Run) -> None:
        """Write changed states; delete rows that were inserted unnecessarily."""
        notes: _Notes = run.notes[self]
        bulk = self._statements(run.connection)
        if notes.changed:
            bulk.update(run.connection, run.consumer, sorted(notes.changed.items()), self._clock.now())
        unused = sorted(notes.new.difference(notes.changed))
        if unused:
            bulk.delete(run.connection, run.consumer, unused)

    def _statements(self, connection: Connection) -> Bulk:
        if self._bulk is None:
            shape = Shape(
                states.TABLE,
                "key",
                "changed_at",
                inserted=("state",),
                updated=("state",),
                read=("state",),
                touches=True,
            )
            self._bulk = bulk_for(connection.dialect, shape)
        return self._bulk
