"""Outbox rows that may be sent now: ours, without an older row of their app, topic and key."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Connection, func, select
from sqlalchemy.dialects.postgresql import TEXT

from oncemq.ledger.messages.outbox import DEAD, TABLE, Claim, Stored
from oncemq.ledger.sql.in_values import among, not_among

Lane = tuple[str, str]
"""Topic and key."""


def sendable(
    connection: Connection, claim: Claim, rows: Sequence[Stored], at_least_until: datetime
) -> dict[int, bool]:
    """Return which of these rows are still ours, and for each whether it may be sent.

    Args:
        connection: for reading.
        claim: their expected owner.
        rows: the rows about to be sent, in order; they do not wait for each other here.
        at_least_until: rows whose lease ends before then are left out.
    """
    waiting_for = _oldest_others(connection, claim, rows)
    # Checks the message id too: SQLite reuses the number of a row that was rolled back.
    ours = select(TABLE.c.id, TABLE.c.message_id).where(
        among(connection, TABLE.c.id, BigInteger(), [stored.id for stored in rows]),
        TABLE.c.owner == claim.owner,
        TABLE.c.due_at > at_least_until,
    )
    still = {row.id: row.message_id for row in connection.execute(ours)}
    return {
        stored.id: stored.message.key is None
        or waiting_for.get((stored.topic, stored.message.key), stored.id) >= stored.id
        for stored in rows
        if still.get(stored.id) == stored.message.message_id
    }


def _oldest_others(connection: Connection, claim: Claim, rows: Sequence[Stored]) -> dict[Lane, int]:
    """Return for each topic and key the oldest row not among these; most have none."""
    keys = {stored.message.key for stored in rows if stored.message.key is not None}
    if not keys:
        return {}
    columns = TABLE.c.topic, TABLE.c.key
    others = (
        select(*columns, func.min(TABLE.c.id).label("oldest"))
        .where(
            TABLE.c.app == claim.app,
            TABLE.c.owner != DEAD,
            among(connection, TABLE.c.key, TEXT(), sorted(keys)),
            not_among(connection, TABLE.c.id, BigInteger(), [stored.id for stored in rows]),
        )
        .group_by(*columns)
    )
    return {(row.topic, row.key): row.oldest for row in connection.execute(others)}
