"""Describes what a strategy has in the ledger that belongs into a table of the user's, and moves it there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, Table


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What an operator has decided about rows that cannot simply be copied.

    Args:
        overwrite: what the ledger has replaces what the user's table has; False = the user's stays; None = not decided.
        insert: a row is inserted for a key without one; False = what the ledger has of it is given up; None = not decided.
    """

    overwrite: bool | None = None
    insert: bool | None = None


@dataclass(frozen=True, slots=True)
class MovedBatch:
    """What came of some rows of the ledger.

    Args:
        last: the key of the last of them; None = there are no more.
        equal: so many are in the user's table already.
        written: so many were written there.
        inserted: for so many a row was inserted.
        kept: so many differ, and the user's stays.
        given_up: so many have no row, and what the ledger has is given up.
        obstacles: why the others could not be copied, a sentence for each.
    """

    last: str | None
    equal: int = 0
    written: int = 0
    inserted: int = 0
    kept: int = 0
    given_up: int = 0
    obstacles: Sequence[str] = ()


class LedgerMove(Protocol):
    """Moves what the ledger has of one consumer into a column of the user's.

    Attributes:
        what: a row's name for people, such as `state`.
        target: the column, as `table.column`.
        ledger: the ledger's table.
    """

    what: str
    target: str
    ledger: Table

    def left(self, connection: Connection) -> bool:
        """Return whether the ledger has rows that nothing reads any more."""
        ...

    def copy(self, connection: Connection, after: str, rules: MoveRules) -> MovedBatch:
        """Copy the next rows, and lock them on both sides.

        Args:
            connection: a transaction.
            after: the last key of the rows before; empty = from the beginning.
            rules: what an operator has decided.
        """
        ...

    def clear(self, connection: Connection) -> int:
        """Delete the consumer's rows of the ledger; returns how many there were."""
        ...
