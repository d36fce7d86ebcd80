"""Reads, counts and deletes records in generations, for operators."""
# ruff: noqa: S608 - the names are the ledger's own; values are parameters

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, text

from oncemq.errors import LedgerError
from oncemq.ledger.generations.registry import DIGEST, Generation, generations_of
from oncemq.ledger.records import final_failures
from oncemq.ledger.records.forgetting import Choice, Record

_LAST_PAGES: Final = 8
_ASKED: Final = DIGEST.format("CAST(:key AS text)")
_COLUMNS: Final = "identity, coalesce(key, identity) AS key, processed_at, fingerprint, result"


def of_key(connection: Connection, consumer: str, key: str) -> list[dict[str, object]]:
    """Return the applied messages of a key, as `processed.of_key` does, of one consumer.

    By an index in generations that are sealed and compact; of the others it reads the whole table.
    """
    rows: list[dict[str, object]] = []
    for generation in _own(connection, consumer):
        table = generation.table
        found = text(
            f"SELECT {_COLUMNS} FROM {table} WHERE key = :key UNION ALL SELECT {_COLUMNS} FROM {table}"
            f" WHERE key IS NULL AND identity = :key AND {DIGEST.format('identity')} = {_ASKED} ORDER BY processed_at"
        )
        rows = [
            {"consumer": consumer, **row} for row in connection.execute(found, {"key": key}).mappings()
        ] + rows
    return rows


def last_applied(connection: Connection, consumer: str) -> datetime | None:
    """Return when the latest message took effect, from the last pages of the newest generation that has any."""
    for generation in _own(connection, consumer):
        name = generation.table
        latest = text(
            f"SELECT max(processed_at) FROM {name} WHERE ctid >= CAST(format('(%s,0)', greatest(pg_relation_size('{name}')"
            f" / CAST(current_setting('block_size') AS integer) - {_LAST_PAGES}, 0)) AS tid)"
        )
        found: datetime | None = connection.execute(latest).scalar()
        if found is not None:
            return found
    return None


def applied_since(connection: Connection, consumer: str, since: datetime, most: int) -> int:
    """Return the number of records since a moment, counted up to `most`, by the index of block ranges."""
    count = 0
    for generation in _own(connection, consumer):
        if count >= most or (generation.sealed_at is not None and generation.sealed_at < since):
            break
        some = text(
            f"SELECT count(*) FROM (SELECT 1 FROM {generation.table} WHERE processed_at >= :since LIMIT :most) AS some"
        )
        count += int(connection.execute(some, {"since": since, "most": most - count}).scalar_one())
    return count


def find(connection: Connection, consumer: str, choice: Choice, limit: int) -> list[Record]:
    """Return a consumer's chosen records, at most `limit`, the oldest first."""
    wanted = ["true"]
    if choice.keys:
        wanted.append("coalesce(key, identity) = ANY(CAST(:keys AS text[]))")
    if choice.since is not None:
        wanted.append("processed_at >= :since")
    if choice.until is not None:
        wanted.append("processed_at < :until")
    parameters: dict[str, Any] = {"keys": sorted(choice.keys), "since": choice.since, "until": choice.until}
    given = {name: value for name, value in parameters.items() if f":{name}" in " ".join(wanted)}
    rows: list[Record] = []
    for generation in reversed(list(_own(connection, consumer))):
        if len(rows) >= limit:
            break
        found = text(
            f"SELECT identity, coalesce(key, identity), processed_at FROM {generation.table}"
            f" WHERE {' AND '.join(wanted)} ORDER BY processed_at, identity LIMIT :limit"
        )
        for identity, key, at in connection.execute(found, {**given, "limit": limit - len(rows)}):
            rows.append(Record(generation.table, identity, key, "", at))
    return rows


def remove(connection: Connection, consumer: str, records: Sequence[Record]) -> list[Record]:
    """Delete those of the records that are in generations; returns the others.

    Raises:
        LedgerError: one of them has changed since it was read; the transaction must be rolled back.
    """
    tables = {generation.table for generation in _own(connection, consumer)}
    mine = [record for record in records if record.table in tables]
    for table in sorted({record.table for record in mine}):
        rows = sorted((record.identity, record.at) for record in mine if record.table == table)
        gone = connection.execute(
            text(
                f"DELETE FROM {table} AS t USING unnest(CAST(:identities AS text[]), CAST(:times AS timestamptz[])) AS r(c0, c1)"
                f" WHERE {DIGEST.format('t.identity')} = {DIGEST.format('r.c0')} AND t.processed_at = r.c1"
            ),
            {"identities": [row[0] for row in rows], "times": [row[1] for row in rows]},
        ).rowcount
        if gone != len(rows):
            raise LedgerError(
                f"a record of {consumer} in {table} has changed meanwhile: a message of it is running; nothing of this "
                "step was deleted. Look again, and stop the app if it happens again"
            )
    return [record for record in records if record.table not in tables]


def forget_failed(connection: Connection, consumer: str, identities: Collection[str]) -> None:
    """Delete the records of those of these messages that failed for good: they shall run again."""
    failed = sorted(final_failures.load(connection, consumer, identities))
    for generation in _own(connection, consumer):
        connection.execute(
            text(
                f"DELETE FROM {generation.table} AS t USING unnest(CAST(:identities AS text[])) AS r(c0)"
                f" WHERE {DIGEST.format('t.identity')} = {DIGEST.format('r.c0')}"
            ),
            {"identities": failed},
        )


def _own(connection: Connection, consumer: str) -> Iterator[Generation]:
    """Yield the live generations with tables of their own, the newest first; the old table is asked as ever."""
    return (each for each in generations_of(connection, consumer) if not each.legacy)
