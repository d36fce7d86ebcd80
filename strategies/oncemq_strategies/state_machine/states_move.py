"""Moves the states that the ledger has of a consumer into a column of the user's."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, Connection, Enum, String

from oncemq.ledger.records.states import TABLE
from oncemq_strategies.common.column_move import ColumnMove
from oncemq_strategies.common.entity_rows import Target


class StatesMove(ColumnMove):
    """The states of one consumer.

    Args:
        consumer: the scope of its rows.
        target: the user's column, as `table.column`.
        table: returns the user's table.
    """

    what = "state"

    def __init__(self, consumer: str, target: str, table: Callable[[Connection], Target]) -> None:
        super().__init__(consumer, target, table, TABLE.c.state)

    def wanted(self, text: str) -> str:
        """Return the state."""
        return text

    def held(self, value: str | None) -> str | None:
        """Return the state without the spaces that fixed-width columns add."""
        return value.rstrip(" ") if value else None

    def fits(self, column: Column[Any], value: str) -> bool:
        """Return whether the column knows the state and is long enough."""
        kind = column.type
        unknown = isinstance(kind, Enum) and value not in kind.enums
        longest = kind.length if isinstance(kind, String) else None
        return not unknown and (longest is None or len(value) <= longest)
