"""Inserts and looks up records of applied messages in a consumer's generations; PostgreSQL."""
# ruff: noqa: S608 - the names are the ledger's own; values are parameters

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Dialect, TextClause, bindparam, text
from sqlalchemy.exc import DBAPIError

from oncemq.errors import InfrastructureError, LedgerError
from oncemq.ledger.generations.registry import DIGEST, Generation, generations_of
from oncemq.ledger.sql.array_literals import of_texts
from oncemq.ledger.sql.bulk import Bulk, Row, Shape
from oncemq.ledger.sql.bulk_dialects import bulk_for
from oncemq.ledger.sql.column_types import Moment

READ_AGAIN: Final = 10.0
"""Seconds for which a process trusts its list; a retired table is dropped much later."""
_TRIES: Final = 3
_UNDEFINED_TABLE: Final = "42P01"
_MINE: Final = DIGEST.format("r.c0")


@dataclass(frozen=True, slots=True)
class _Live:
    """What is known of a consumer's generations, and the statements made for them."""

    number: int
    table: str
    read_at: float
    insert: TextClause
    read: TextClause
    update: TextClause
    delete: TextClause


class GenerationBulk:
    """The bulk statements of one consumer; see `oncemq.ledger.generations` for why they let no duplicate through.

    Args:
        shape: of `oncemq_processed`.
        monotonic: seconds.
    """

    def __init__(self, shape: Shape, monotonic: Callable[[], float]) -> None:
        self._shape = shape
        self._monotonic = monotonic
        self._live: _Live | None = None

    def insert_new(
        self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime
    ) -> set[str]:
        """See Bulk."""
        live = self._live
        if live is None or self._monotonic() - live.read_at > READ_AGAIN:
            live = self._look(connection, consumer)
        parameters = {"now": now, **_arrays(self._stored(rows))}
        for _ in range(_TRIES):
            wanted = {**parameters, "consumer": consumer, "generation": live.number}
            found = self._execute(connection, live.insert, wanted).scalars().all()
            if None not in found:
                # `delete` and `update` of this transaction go to the same table: no rotation seals it before the end.
                connection.info[_used(consumer)] = live
                return set(found)
            live = self._look(connection, consumer)
        raise InfrastructureError(f"{consumer}: its generations changed again and again; run again")

    def update(self, connection: Connection, consumer: str, rows: Sequence[Row], now: datetime) -> None:  # noqa: ARG002
        """See Bulk."""
        self._execute(connection, _of_run(connection, consumer).update, _arrays(rows))

    def delete(self, connection: Connection, consumer: str, keys: Sequence[str]) -> None:
        """See Bulk."""
        self._execute(connection, _of_run(connection, consumer).delete, {"c0": of_texts(keys)})

    def read(
        self,
        connection: Connection,
        consumer: str,
        keys: Sequence[str],
        *,
        lock: bool = False,  # noqa: ARG002 - records of applied messages are never changed by others
    ) -> dict[str, Sequence[str | None]]:
        """See Bulk."""
        statement = _of_run(connection, consumer).read
        found = self._execute(connection, statement, {"c0": of_texts(keys), "consumer": consumer})
        return {row[0]: row[1:] for row in found}

    def _stored(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows as they are stored: without a key that equals the identity."""
        return [(row[0], None if row[1] == row[0] else row[1], *row[2:]) for row in rows]

    def _look(self, connection: Connection, consumer: str) -> _Live:
        """Read the list; the transaction's earlier statements do not matter, each has a snapshot of its own."""
        found = generations_of(connection, consumer)
        if not found or found[0].sealed_at is not None:
            raise LedgerError(f"{consumer} has no generations in the ledger: run `oncemq tables create`")
        self._live = live = _statements(found, self._shape, self._monotonic())
        return live

    def _execute(self, connection: Connection, statement: TextClause, parameters: dict[str, Any]) -> Any:
        try:
            return connection.execute(statement, parameters)
        except DBAPIError as error:
            self._live = None
            if getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE:
                raise InfrastructureError(
                    "a generation of the ledger was dropped while this process was stopped; the unit runs again"
                ) from error
            raise


def processed_bulk(
    dialect: Dialect, shape: Shape, monotonic: Callable[[], float], *, generations: bool
) -> Bulk:
    """Return the statements for records of applied messages: in generations, or in the table `oncemq_processed`."""
    return GenerationBulk(shape, monotonic) if generations else bulk_for(dialect, shape)


def _statements(found: Sequence[Generation], shape: Shape, read_at: float) -> _Live:
    newest, table = found[0], found[0].table
    columns = [shape.key, *shape.inserted]
    names = ", ".join([shape.moment, *columns])
    values = ", ".join(f"r.c{number}" for number in range(len(columns)))
    unseen = "".join(f" AND NOT EXISTS (SELECT 1 FROM {_same(older)} OFFSET 0)" for older in found[1:])
    insert = (
        "WITH here AS (SELECT 1 FROM oncemq_generations WHERE id = :generation AND sealed_at IS NULL),"
        f" fresh AS (INSERT INTO {table} ({names}) SELECT CAST(:now AS timestamptz), {values} FROM {_unnest(len(columns))}"
        f" WHERE EXISTS (SELECT 1 FROM here){unseen} ON CONFLICT DO NOTHING RETURNING identity)"
        " SELECT identity FROM fresh UNION ALL SELECT NULL WHERE NOT EXISTS (SELECT 1 FROM here)"
    )
    if "consumer" not in unseen:
        # The old table is no longer looked up; the parameter stays, so that all lists are asked in the same way.
        insert += " AND CAST(:consumer AS text) IS NOT NULL"
    shown = ", ".join(f"t.{name}" for name in [shape.key, *shape.read])
    parts = [
        f"SELECT found.* FROM {_unnest(1)} CROSS JOIN LATERAL (SELECT {shown} FROM {_same(each)} OFFSET 0) AS found"
        for each in found
    ]
    read = " UNION ALL ".join(parts)
    if not any(each.legacy for each in found):
        read = f"SELECT * FROM ({read}) AS found WHERE CAST(:consumer AS text) IS NOT NULL"
    sets = ", ".join(f"{name} = r.c{number}" for number, name in enumerate(shape.updated, 1))
    mine = f"{DIGEST.format('t.identity')} = {_MINE}"
    return _Live(
        number=newest.number,
        table=table,
        read_at=read_at,
        insert=text(insert).bindparams(bindparam("now", type_=Moment())),
        read=text(read),
        update=text(f"UPDATE {table} AS t SET {sets} FROM {_unnest(len(shape.updated) + 1)} WHERE {mine}"),
        delete=text(f"DELETE FROM {table} AS t USING {_unnest(1)} WHERE {mine}"),
    )


def _same(generation: Generation) -> str:
    """Return the table of a generation as `t`, and the condition that its row has the identity `r.c0`.

    With `OFFSET 0` behind it the planner looks up each identity by the index, also in a plan that it made while the table was small.
    """
    if generation.legacy:
        return f"{generation.table} AS t WHERE t.consumer = :consumer AND t.identity = r.c0"
    return f"{generation.table} AS t WHERE {DIGEST.format('t.identity')} = {_MINE}"


def _of_run(connection: Connection, consumer: str) -> _Live:
    live: _Live = connection.info[_used(consumer)]
    return live


def _used(consumer: str) -> str:
    return f"oncemq generation {consumer}"


def _arrays(rows: Sequence[Row]) -> dict[str, str]:
    return {f"c{number}": of_texts(column) for number, column in enumerate(zip(*rows, strict=True))}


def _unnest(count: int) -> str:
    arrays = ", ".join(f"CAST(:c{number} AS text[])" for number in range(count))
    return f"unnest({arrays}) AS r({', '.join(f'c{number}' for number in range(count))})"
