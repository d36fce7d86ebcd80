"""Raises the fence before handlers read, in a committed transaction of its own, so late holders are refused at once."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, or_, update

from oncemq.ledger.sql.lock_waits import only_a_moment
from oncemq.ledger.sql.row_locks import RowLock
from oncemq.retry.classify import Fault, classify
from oncemq_strategies.common.entity_rows import Target
from oncemq_strategies.common.own_transaction import in_transaction


def raise_now(
    engine: Engine, target_of: Callable[[Connection], Target], tokens: Mapping[str, int]
) -> set[str]:
    """Write the tokens where no higher token is stored, and commit; returns keys whose rows are locked by others.

    No row lock is waited for: a late holder with an uncommitted write keeps its row, and the message is deferred.
    A key without a row, or with a higher token, is left to the comparison at the unit's end.

    Args:
        engine: the app's database.
        target_of: returns the table; its first column is the fence.
        tokens: of each key's lock.
    """
    if _raised(engine, target_of, tokens):
        return set()
    return {key for key, token in sorted(tokens.items()) if not _raised(engine, target_of, {key: token})}


def _raised(engine: Engine, target_of: Callable[[Connection], Target], tokens: Mapping[str, int]) -> bool:
    def work(connection: Connection) -> None:
        target = target_of(connection)
        rows = _rows(target, tokens)
        if target.folds and rows:
            # Another spelling of a row's key is not about that row; the comparison at the unit's end says so.
            values = [row["fenced_key"] for row in rows]
            _, matches = target.find(connection, values, RowLock.none(), connection)
            rows = [row for row in rows if (row["fenced_key"],) not in matches.respelled]
        if not rows:
            return
        fence = target.columns[0]
        lower = or_(fence.is_(None), fence < bindparam("fence_token"))
        with only_a_moment(connection):
            connection.execute(
                update(target.table)
                .where(target.key == bindparam("fenced_key"), lower)
                .values({fence: bindparam("fence_token")}),
                rows,
            )

    try:
        in_transaction(engine, work, tries=1)
    except Exception as error:
        if classify(error) is Fault.TRANSIENT:
            return False
        raise
    return True


def _rows(target: Target, tokens: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the parameters in one order for all processes; keys that fit no row are left out."""
    rows = []
    for key, token in sorted(tokens.items()):
        try:
            rows.append({"fenced_key": target.convert(key), "fence_token": token})
        except ValueError:
            continue
    return rows
