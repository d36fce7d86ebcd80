"""Mutexes for rows that do not exist yet: a database cannot lock a missing row."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Column, Connection, bindparam, text
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from oncemq.ledger.sql.column_types import MYSQL_NAMES, ExactText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table

TABLE = ledger_table(
    "locked_rows",
    Column("scope", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), primary_key=True),
    Column("locked_at", Moment, nullable=False, index=True),
)

_ADVISORY = text(
    "SELECT pg_advisory_xact_lock(h) FROM (SELECT DISTINCT hashtextextended(:scope || k, 0) AS h"
    " FROM unnest(:keys) AS k ORDER BY 1) AS sorted"
).bindparams(bindparam("keys", type_=ARRAY(TEXT)))


def lock_keys(connection: Connection, scope: str, keys: Sequence[str], *, at: datetime) -> None:
    """Hold a mutex for each of `keys` in `scope` until the transaction ends; waits for other holders.

    Args:
        connection: the transaction.
        scope: what the keys belong to, such as the table's name.
        keys: in any order; they are locked in sorted order.
        at: now, for the later purge of mutex rows.
    """
    if not keys:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(_ADVISORY, {"scope": f"oncemq row {scope} ", "keys": sorted(keys)})
    elif connection.dialect.name in MYSQL_NAMES:
        rows = [{"scope": scope, "key": key, "locked_at": at} for key in sorted(set(keys))]
        insert = mysql.insert(TABLE).values(rows)
        connection.execute(insert.on_duplicate_key_update(locked_at=insert.inserted.locked_at))
    # SQLite: BEGIN IMMEDIATE has locked everything.
