"""Advances a timestamp of the ledger, so that processes that remember it notice when a backup is restored."""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final

from sqlalchemy import Connection, select, update

from oncemq.ledger.coordination import leases
from oncemq.ledger.database.server_clock import server_time
from oncemq.ledger.sql.upsert import upsert

_NEVER: Final = datetime(1970, 1, 2, tzinfo=UTC)
_STEP: Final = timedelta(milliseconds=1)
_OWNER: Final = "pulse"


def advance(connection: Connection, name: str, seen: datetime | None) -> tuple[datetime, bool]:
    """Advance the timestamp `name`; returns its new moment, and whether it had gone back behind `seen`.

    Args:
        connection: in a transaction of its own, whose commit makes the new moment visible to others.
        name: the timestamp's name.
        seen: a moment of it that was committed, read before this transaction began; None = unknown.
    """
    name = f"pulse {blake2b(name.encode(), digest_size=16).hexdigest()}"
    # This locks the row, so that only one of several processes finds that the ledger went back.
    row = {"name": name, "owner": _OWNER, "until": _NEVER}
    upsert(connection, leases.TABLE, row, {"owner": _OWNER})
    mine = leases.TABLE.c.name == name
    before: datetime = connection.execute(select(leases.TABLE.c.until).where(mine)).scalar_one()
    moment = max(server_time(connection), before + _STEP, (seen or _NEVER) + _STEP)
    connection.execute(update(leases.TABLE).where(mine).values(until=moment))
    return moment, seen is not None and before < seen
