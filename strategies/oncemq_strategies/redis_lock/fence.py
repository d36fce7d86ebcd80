"""Fence: a column beside the guarded data that keeps the highest token and refuses writers with a lower one."""

from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Integer, bindparam, update

from oncemq.common.problems import Problem
from oncemq.contracts.strategy import Scope
from oncemq.contracts.unit import Item, Run
from oncemq.contracts.verdict import Culprits, Verdict, defer, retry
from oncemq.ledger.database.user_tables import UnfitTable, check_name, look_up
from oncemq.ledger.sql.row_locks import RowLock
from oncemq_strategies.common.entity_rows import Found, Target
from oncemq_strategies.common.options import Options
from oncemq_strategies.common.table_lookup import LookedUp
from oncemq_strategies.redis_lock.fence_rows import raise_now

_PAUSE = timedelta(milliseconds=100)


class Fence:
    """A column of the user's table.

    Args:
        scope: given to the strategy.
        table: the table's name.
        key: its unique column that holds a message's key.
        column: its column of whole numbers that holds the token; NULL before the first write.
    """

    def __init__(self, scope: Scope, table: str, key: str, column: str) -> None:
        self._engine = scope.engine
        self._table = table
        self._column = column
        self._target = LookedUp(
            scope, table, "fence", lambda connection: _look(connection, scope, table, key, column)
        )

    @classmethod
    def of(cls, given: Options, scope: Scope) -> "Fence":
        """Return the fence that the option `fence` describes."""
        entry = Options("redis_lock.fence", given.mapping("fence"), scope)
        entry.known("table", "key", "column")
        try:
            return cls(
                scope,
                check_name(entry.text("table"), qualified=True),
                check_name(entry.text("key")),
                check_name(entry.text("column")),
            )
        except UnfitTable as error:
            given.refuse(str(error), name="fence")

    def check(self) -> list[Problem]:
        """Return why the table cannot be used."""
        return self._target.check()

    def raise_now(self, tokens: Mapping[str, int]) -> set[str]:
        """Raise the fence of these keys before their handlers read; returns keys whose rows are locked by others."""
        if self._engine is None or not tokens:
            return set()
        return raise_now(self._engine, self._target.get, tokens)

    def raise_to(self, run: Run, tokens: Mapping[Item, int], behind: MutableMapping[Item, int]) -> None:
        """Write the tokens where no higher token is stored; the rows stay locked until the transaction ends.

        Args:
            run: the run of the items.
            tokens: of the items' locks.
            behind: filled with the higher token found in an item's row.

        Raises:
            Culprits: a later holder has written to the row, or it does not exist.
        """
        if not tokens:
            return
        target = self._target.get(run.connection)
        found = Found(target, list(tokens))
        found.read(target, found.wanted(), RowLock(), run.connection, run.connection)
        rows = found.rows
        for item in tokens:
            row = rows.get(found.values.get(item))
            if row is not None and row[1] is not None and row[1] > tokens[item]:
                behind[item] = row[1]
        culprits = {
            item: verdict
            for item in tokens
            if (verdict := self._refused(target, found, rows, item, tokens[item]))
        }
        if culprits:
            raise Culprits(culprits)
        highest = {found.values[item]: token for item, token in tokens.items()}
        column = target.columns[0]
        run.connection.execute(
            update(target.table)
            .where(target.key == bindparam("fenced_key"))
            .values({column: bindparam("fence_token")}),
            [{"fenced_key": value, "fence_token": token} for value, token in sorted(highest.items())],
        )

    def _refused(
        self, target: Target, found: Found, rows: Mapping[Any, Any], item: Item, token: int
    ) -> Verdict | None:
        unfit = found.unfit(target, item)
        if unfit is not None:
            return unfit
        row = rows.get(found.values[item])
        if row is None:
            return retry(
                f"the handler ran, but {self._table} has no row for key {item.key!r} that could be fenced: "
                "create it in the handler"
            )
        if row[1] is not None and row[1] > token:
            return defer(
                _PAUSE, f"the lock was lost: {self._table}.{self._column} has a later holder's token"
            )
        return None


def _look(connection: Connection, scope: Scope, table: str, key: str, column: str) -> Target:
    target = Target(connection, look_up(connection, scope.metadata, table), key, [column])
    if not isinstance(target.columns[0].type, Integer):
        raise UnfitTable(f"column {target.columns[0]} must hold whole numbers, best BIGINT, to be a fence")
    return target
