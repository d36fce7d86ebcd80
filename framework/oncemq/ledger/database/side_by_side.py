"""Tries with two transactions side by side what the ledger needs of a database, which may only speak another one's protocol."""

from typing import Final

from sqlalchemy import Connection, Engine, Table, exc, select, text

from oncemq.errors import LedgerError
from oncemq.ledger.database import galera
from oncemq.ledger.database.connect import place
from oncemq.ledger.database.rights import is_denied
from oncemq.ledger.sql.column_types import MYSQL_NAMES
from oncemq.ledger.sql.row_locks import can_skip_locked

ISOLATION: Final = "READ COMMITTED"

_ADVISORY: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('oncemq check', 0))")
_TRY_ADVISORY: Final = text("SELECT pg_try_advisory_xact_lock(hashtextextended('oncemq check', 0))")
_NEEDED: Final = "the ledger cannot be used there; docs/databases.md says what it needs"


def examine(engine: Engine, always_filled: Table) -> list[str]:
    """Return the risks that two connections show; changes nothing.

    Args:
        engine: the app's database; SQLite needs nothing of this.
        always_filled: a table of the ledger with at least one row, which is locked for a moment.

    Raises:
        LedgerError: the database lacks what the ledger needs.
    """
    if engine.dialect.name == "sqlite":
        return []
    with engine.connect() as holder, engine.connect() as other:
        if (isolation := holder.get_isolation_level()) != ISOLATION:
            raise LedgerError(
                f"{place(engine)} runs transactions as {isolation} although {ISOLATION} is asked for: {_NEEDED}"
            )
        if engine.dialect.name in MYSQL_NAMES and (risk := _different_nodes(holder, other, engine)):
            return [risk]
        try:
            _insist_on_row_locks(holder, other, always_filled, engine)
        except exc.DBAPIError as error:
            # The account may only read that table.
            if not is_denied(error):
                raise
            holder.rollback()
            other.rollback()
        if engine.dialect.name == "postgresql":
            _insist_on_advisory_locks(holder, other, engine)
    return []


def _different_nodes(holder: Connection, other: Connection, engine: Engine) -> str | None:
    names = sorted({str(name) for name in map(galera.node_of, (holder, other)) if name is not None})
    if len(names) < 2:
        return None
    return (
        f"{place(engine)} leads to several nodes of a Galera cluster ({', '.join(names)}), and a row that is locked on one of them "
        "is not locked on the others: a handler that only reads what it locked can be wrong, and units that meet are rolled back "
        "and run again; give all processes one address that leads to one node at a time"
    )


def _insist_on_row_locks(holder: Connection, other: Connection, table: Table, engine: Engine) -> None:
    rows = select(*table.primary_key)
    holder.execute(rows.with_for_update()).all()
    if not can_skip_locked(other):
        return
    if other.execute(rows.with_for_update(skip_locked=True)).all():
        raise LedgerError(
            f"{place(engine)} lets two transactions lock the same row (SELECT … FOR UPDATE SKIP LOCKED): {_NEEDED}"
        )


def _insist_on_advisory_locks(holder: Connection, other: Connection, engine: Engine) -> None:
    holder.execute(_ADVISORY)
    if other.scalar(_TRY_ADVISORY):
        raise LedgerError(
            f"{place(engine)} accepts pg_advisory_xact_lock() and locks nothing with it: {_NEEDED}"
        )
