"""Moves the numbers that `sequence` has reached in the ledger into the user's column of versions."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Integer, Numeric, SmallInteger, update
from sqlalchemy.dialects import mysql

from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.messages import parking
from oncemq.ledger.records.sequences import TABLE
from oncemq_strategies.common.column_move import ColumnMove
from oncemq_strategies.common.entity_rows import Target

_BITS: Final = (
    (mysql.TINYINT, 8),
    (mysql.MEDIUMINT, 24),
    (SmallInteger, 16),
    (BigInteger, 64),
    (Integer, 32),
)
"""Types of columns; the first that fits counts."""


class VersionsMove(ColumnMove):
    """The last numbers of one consumer.

    Args:
        consumer: the scope of its rows.
        target: the user's column, as `table.column`.
        table: returns the user's table.
        ahead: so far is a row's version beyond the number of the last message that it has seen.
    """

    what = "number"

    def __init__(self, consumer: str, target: str, table: Callable[[Connection], Target], ahead: int) -> None:
        super().__init__(consumer, target, table, TABLE.c.last)
        self._ahead = ahead

    def wanted(self, text: str) -> int:
        """Return the version of a row whose last message has this number."""
        return int(text) + self._ahead

    def held(self, value: Any) -> int | None:
        """Return the row's version."""
        return None if value is None else int(value)

    def fits(self, column: Column[Any], value: int) -> bool:
        """Return whether the column is wide enough."""
        kind = column.type
        if isinstance(kind, Numeric):
            return kind.precision is None or abs(value) < 10**kind.precision
        bits: int = next((bits for wide, bits in _BITS if isinstance(kind, wide)), 64)
        if getattr(kind, "unsigned", False):
            return 0 <= value < 1 << bits
        most = 1 << (bits - 1)
        return -most <= value < most

    def clear(self, connection: Connection) -> int:
        """Delete the consumer's numbers of the ledger, and have its parked messages looked at after the start.

        They wait for numbers that `sequence` would have noted.
        """
        waiting = parking.TABLE.c
        early = (waiting.consumer == self._consumer) & waiting.number.is_not(None) & ~waiting.held
        connection.execute(update(parking.TABLE).where(early).values(due_at=server_time(connection)))
        return super().clear(connection)
