"""Messages that were running when a process died: they run isolated until one attempt is over.

Deaths by a handler's hard time limit are counted in a second row, whose identity is `overruns(identity)`.
"""

from collections.abc import Collection
from datetime import datetime
from hashlib import blake2b

from sqlalchemy import Column, Connection, Integer, delete, select

from oncemq.common.clock import SystemClock
from oncemq.ledger.sql.column_types import ExactText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, KEY_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

TABLE = ledger_table(
    "suspects",
    Column("consumer", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("identity", ExactText(KEY_SIZE), primary_key=True),
    Column("key", ExactText(KEY_SIZE), nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("crashed_at", Moment, nullable=False),
)

_OVERRUNS = "hard-limit:"
_ON_DEAD = "on-dead:"


def overruns(identity: str) -> str:
    """Return the name under which deaths by the hard time limit of this message are counted."""
    return f"{_OVERRUNS}{blake2b(identity.encode(), digest_size=16).hexdigest()}"


def on_dead(identity: str) -> str:
    """Return the name under which deaths while the consumer's `on_dead` function ran for this message are counted."""
    return f"{_ON_DEAD}{blake2b(identity.encode(), digest_size=16).hexdigest()}"


def names_of(identity: str) -> frozenset[str]:
    """Return every name under which deaths are counted for this message."""
    return frozenset({identity, overruns(identity), on_dead(identity)})


def load(connection: Connection, consumer: str) -> dict[str, int]:
    """Return by identity, and by `overruns(identity)`, how often a process died while the message ran."""
    found = select(TABLE.c.identity, TABLE.c.crashes).where(TABLE.c.consumer == consumer)
    return {row.identity: row.crashes for row in connection.execute(found)}


def charge(
    connection: Connection,
    consumer: str,
    key: str,
    identity: str,
    *,
    crashes: int = 1,
    at: datetime | None = None,
) -> int:
    """Count a crash of this message, or with `crashes=0` only mark it as a suspect; returns how many there are now."""
    row = {
        "consumer": consumer,
        "identity": identity,
        "key": key,
        "crashes": crashes,
        "crashed_at": at or SystemClock().now(),
    }
    upsert(connection, TABLE, row, {"crashes": TABLE.c.crashes + crashes, "crashed_at": row["crashed_at"]})
    count = select(TABLE.c.crashes).where(TABLE.c.consumer == consumer, TABLE.c.identity == identity)
    return int(connection.execute(count).scalar_one())


def clear(connection: Connection, consumer: str, identities: Collection[str]) -> None:
    """Delete the crash counts of messages that are settled."""
    if identities:
        names = sorted(frozenset().union(*map(names_of, identities)))
        ours = (TABLE.c.consumer == consumer) & TABLE.c.identity.in_(names)
        connection.execute(delete(TABLE).where(ours))


def of_key(connection: Connection, key: str) -> list[dict[str, object]]:
    """Return the suspects of a key; `hard_limits` says how many of the crashes were ended by the hard time limit."""
    found = [dict(row) for row in connection.execute(select(TABLE).where(TABLE.c.key == key)).mappings()]
    by_name = {(row["consumer"], row["identity"]): row["crashes"] for row in found}
    counted = {(row["consumer"], overruns(str(row["identity"]))) for row in found}
    return [
        {**row, "hard_limits": by_name.get((row["consumer"], overruns(str(row["identity"]))), 0)}
        for row in found
        if (row["consumer"], row["identity"]) not in counted
    ]
