"""Rows of the outbox that may be sent now: ours, without an older row of their app, topic and key."""

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
        claim: whose they should be.
        rows: what is about to be sent, in order; they do not wait for each other here.
        at_least_until: rows that are ours only until before then are left out.
    """
    waiting_for = _oldest_others(connection, claim, rows)
    # The message id too: SQLite gives the number of a row that was rolled back to the next one.
    ours = select(TABLE.c.id, TABLE.c.message_id).where(
        among(connection, TABLE.c.id, BigInteger(), [one.id for one in rows]),
        TABLE.c.owner == claim.owner,
        TABLE.c.due_at > at_least_until,
    )
    still = {row.id: row.message_id for row in connection.execute(ours)}
    return {
        one.id: one.message.key is None or waiting_for.get((one.topic, one.message.key), one.id) >= one.id
        for one in rows
        if still.get(one.id) == one.message.message_id
    }


def _oldest_others(connection: Connection, claim: Claim, rows: Sequence[Stored]) -> dict[Lane, int]:
    """Return for each topic and key the oldest row that is none of these; most have none."""
    keys = {one.message.key for one in rows if one.message.key is not None}
    if not keys:
        return {}
    columns = TABLE.c.topic, TABLE.c.key
    others = (
        select(*columns, func.min(TABLE.c.id).label("oldest"))
        .where(
            TABLE.c.app == claim.app,
            TABLE.c.owner != DEAD,
            among(connection, TABLE.c.key, TEXT(), sorted(keys)),
            not_among(connection, TABLE.c.id, BigInteger(), [one.id for one in rows]),
        )
        .group_by(*columns)
    )
    return {(row.topic, row.key): row.oldest for row in connection.execute(others)}
