"""Outbox rows that may be sent now: ours, without an older row of their app, topic and key."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Engine, func, select, text
from sqlalchemy.dialects.postgresql import TEXT

from oncemq.ledger.database.connect import READ_ONLY
from oncemq.ledger.messages import outbox
from oncemq.ledger.messages.outbox import DEAD, TABLE, Claim, Stored
from oncemq.ledger.sql.array_literals import of_numbers, of_texts
from oncemq.ledger.sql.in_values import among, not_among

Lane = tuple[str, str]
"""Topic and key."""

_SENT_THEN_SENDABLE = text(
    f"WITH gone AS (DELETE FROM {TABLE.name} AS t USING unnest(CAST(:sent AS bigint[])) AS r(id)"  # noqa: S608 - our own names
    " WHERE t.id = r.id AND t.owner = :owner)"
    # All parts have one snapshot, which still shows what the first one deletes.
    " SELECT t.id, t.message_id, NULL AS topic, NULL AS key FROM unnest(CAST(:ids AS bigint[])) AS r(id)"
    f" JOIN {TABLE.name} AS t ON t.id = r.id"
    " WHERE t.owner = :owner AND t.due_at > :until AND t.id <> ALL (CAST(:sent AS bigint[]))"
    " UNION ALL SELECT min(t.id), NULL, t.topic, t.key FROM unnest(CAST(:keys AS text[])) AS r(key)"
    f" JOIN {TABLE.name} AS t ON t.key = r.key WHERE t.app = :app AND t.owner <> :dead"
    # What another relay has taken over is not deleted: it will be sent again, before the later ones of its key.
    " AND t.id <> ALL (CAST(:ids AS bigint[])) AND (t.owner <> :owner OR t.id <> ALL (CAST(:sent AS bigint[])))"
    " GROUP BY t.topic, t.key"
)
"""The statements of `sent` and `sendable` in one: a round of the relay waits for PostgreSQL once."""


def sent_then_sendable(
    engine: Engine, claim: Claim, sent: Sequence[int], rows: Sequence[Stored], at_least_until: datetime
) -> dict[int, bool]:
    """Delete rows whose broker has confirmed them, and return what `sendable` does.

    Args:
        engine: the database with the outbox.
        claim: the owner of all these rows.
        sent: numbers of confirmed rows.
        rows: as `sendable`.
        at_least_until: as `sendable`.
    """
    if engine.dialect.name == "postgresql":
        return _in_one_statement(engine, claim, sent, rows, at_least_until)
    if sent:
        with engine.begin() as connection:
            outbox.sent(connection, claim, sent)
    if not rows:
        return {}
    with engine.connect().execution_options(**{READ_ONLY: True}) as connection:
        return sendable(connection, claim, rows, at_least_until)


def _in_one_statement(
    engine: Engine, claim: Claim, sent: Sequence[int], rows: Sequence[Stored], at_least_until: datetime
) -> dict[int, bool]:
    parameters = {
        "app": claim.app,
        "owner": claim.owner,
        "dead": DEAD,
        "until": at_least_until,
        "sent": of_numbers(sorted(sent)),
        "ids": of_numbers(row.id for row in rows),
        "keys": of_texts(sorted({row.message.key for row in rows if row.message.key is not None})),
    }
    still: dict[int, str] = {}
    waiting_for: dict[Lane, int] = {}
    # Alone in its transaction, so that no message is sent to begin and none to commit it.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for number, message_id, topic, key in connection.execute(_SENT_THEN_SENDABLE, parameters):
            if topic is None:
                still[number] = message_id
            else:
                waiting_for[topic, key] = number
    return _sendable(rows, still, waiting_for)


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
    return _sendable(rows, _still_ours(connection, claim, rows, at_least_until), waiting_for)


def _sendable(rows: Sequence[Stored], still: dict[int, str], waiting_for: dict[Lane, int]) -> dict[int, bool]:
    # Checks the message id too: SQLite reuses the number of a row that was rolled back.
    return {
        stored.id: stored.message.key is None
        or waiting_for.get((stored.topic, stored.message.key), stored.id) >= stored.id
        for stored in rows
        if still.get(stored.id) == stored.message.message_id
    }


def _still_ours(
    connection: Connection, claim: Claim, rows: Sequence[Stored], at_least_until: datetime
) -> dict[int, str]:
    """Return the numbers and message ids of the rows that the claim owns for long enough."""
    ours = select(TABLE.c.id, TABLE.c.message_id).where(
        among(connection, TABLE.c.id, BigInteger(), [stored.id for stored in rows]),
        TABLE.c.owner == claim.owner,
        TABLE.c.due_at > at_least_until,
    )
    return {row.id: row.message_id for row in connection.execute(ours)}


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
