"""Numbers that each key has reached, in the ledger's own table: rows are inserted first, then locked."""

from collections.abc import Sequence

from sqlalchemy import Connection

from oncemq.common.clock import Clock
from oncemq.contracts.unit import Item, Run
from oncemq.errors import InfrastructureError
from oncemq.ledger.records import sequences
from oncemq.ledger.sql.bulk import Bulk, Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for

_NONE_YET = ""


class Numbers:
    """State of one run.

    Attributes:
        new: keys whose row this run inserted.
        last: the last number of each key, including this run; None = none yet.
        moved: keys to be written.
    """

    __slots__ = ("last", "moved", "new")

    def __init__(self, new: set[str]) -> None:
        self.new = new
        self.last: dict[str, int | None] = dict.fromkeys(new)
        self.moved: dict[str, int] = {}

    def move(self, key: str, number: int) -> None:
        """Note that a key has reached `number`."""
        self.last[key] = self.moved[key] = number


class SequenceNumbers:
    """The ledger's table `oncemq_sequences`; a transaction that has loaded a key locks it until its end.

    The row is inserted before it is locked, so that a new key can be locked, too: two processes that see the same key
    decide one after the other, and the second sees the messages that the first has parked.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bulk: Bulk | None = None

    def load(self, run: Run, items: Sequence[Item]) -> Numbers:
        """Lock the row of every key and read its number."""
        keys = sorted({item.key for item in items})
        bulk = self._statements(run.connection)
        rows = [(key, _NONE_YET) for key in keys]
        numbers = Numbers(bulk.insert_new(run.connection, run.consumer, rows, self._clock.now()))
        old = [key for key in keys if key not in numbers.new]
        if old:
            for key, (last,) in bulk.read(run.connection, run.consumer, old, lock=True).items():
                numbers.last[key] = int(last) if last else None
            if len(numbers.last) < len(keys):
                raise InfrastructureError(
                    f"{run.consumer}: another transaction rolled back a new key meanwhile; run again"
                )
        return numbers

    def save(self, run: Run, numbers: Numbers) -> None:
        """Write the changed numbers; delete rows that were inserted unnecessarily."""
        bulk = self._statements(run.connection)
        if numbers.moved:
            moved = [(key, str(number)) for key, number in sorted(numbers.moved.items())]
            bulk.update(run.connection, run.consumer, moved, self._clock.now())
        unused = sorted(numbers.new.difference(numbers.moved))
        if unused:
            bulk.delete(run.connection, run.consumer, unused)

    def _statements(self, connection: Connection) -> Bulk:
        if self._bulk is None:
            shape = Shape(
                sequences.TABLE,
                "key",
                "moved_at",
                inserted=("last",),
                updated=("last",),
                read=("last",),
                touches=True,
            )
            self._bulk = bulk_for(connection.dialect, shape)
        return self._bulk
