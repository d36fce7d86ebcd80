"""Leaves on each shard only what belongs there, after a whole database was copied to several."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Engine, MetaData, Table, delete, select, tuple_
from sqlalchemy.exc import NoSuchTableError

from oncemq.common.sharding import Layout
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError
from oncemq.ledger.coordination import shards
from oncemq.ledger.database.connect import place
from oncemq.ledger.messages import dead_letters, delayed, outbox, parking
from oncemq.ledger.records import (
    audit,
    claims,
    final_failures,
    history,
    key_fingerprints,
    processed,
    sequences,
    states,
    suspects,
)

_BATCH: Final = 500
_OF_KEYS: Final = (
    processed.TABLE,
    claims.TABLE,
    states.TABLE,
    sequences.TABLE,
    key_fingerprints.TABLE,
    parking.TABLE,
    history.TABLE,
    final_failures.TABLE,
    audit.TABLE,
)
"""Tables whose rows are on the shard of their key."""
_OF_THEIR_MAKERS: Final = (outbox.TABLE, delayed.TABLE)
"""Tables whose rows are on the shard of the message whose handler made them."""
_OF_THE_FIRST: Final = (suspects.TABLE, dead_letters.TABLE)
"""Tables whose rows are on the first shard."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one table that are divided.

    Args:
        table: has a primary key.
        key: the column that says to which shard a row belongs; None = to the first.
        ours: which rows are the app's.
        anywhere: a row is on the shard of the message that made it, and its key may belong elsewhere.
    """

    table: Table
    key: Column[Any] | None
    ours: ColumnElement[bool] | None = None
    anywhere: bool = False

    @property
    def same(self) -> list[Column[Any]]:
        """Return the columns by which a row is known again: numbers alone mean another row on another shard."""
        identity = list(self.table.primary_key.columns)
        more = [self.table.c[name] for name in ("message_id", "created_at")] if self.anywhere else []
        keys = [] if self.key is None or self.key in identity else [self.key]
        return [*identity, *keys, *more]


@dataclass(frozen=True, slots=True)
class Split:
    """What became of one table on one shard.

    Args:
        engine: the shard.
        table: the table's name.
        stays: so many rows belong there.
        goes: so many belong elsewhere, where they are, too.
    """

    engine: Engine
    table: str
    stays: int
    goes: int


def split(plan: AppPlan, tables: Mapping[str, str], *, keep: bool) -> Iterator[Split]:
    """Delete on each shard the rows that belong to another, which has them; yields a line for each table and shard.

    Everything is looked at before anything is deleted. What a killed command has deleted is simply not there any more.

    Args:
        plan: the app.
        tables: the user's, with the column of each that has the message's key.
        keep: whether the rows are deleted, and each database becomes the shard that it is to be.

    Raises:
        ConfigError: the app is not sharded, or a row is not on the shard that it belongs to.
    """
    layout = plan.layout
    if layout is None:
        raise ConfigError(["the app has one database: write database: {shards: [\u2026], by: key} first"])
    if plan.generations:
        raise ConfigError(
            [
                "the records are in generations, which are not split: go back to one table first (docs/ledger.md)"
            ]
        )
    parts = [*_ledger_parts(plan.name), *_parts_of_users(plan.engines[0], tables)]
    for part in parts:
        for number in range(len(plan.engines)):
            _on_shard(plan.engines, layout, part, number, keep=False)
    for part in parts:
        for number, engine in enumerate(plan.engines):
            stays, goes = _on_shard(plan.engines, layout, part, number, keep=keep)
            yield Split(engine, part.table.fullname, stays, goes)
    if keep:
        shards.record(plan.engines, plan.name, layout)


def _ledger_parts(app: str) -> Iterator[_Part]:
    for table in (*_OF_KEYS, *_OF_THEIR_MAKERS, *_OF_THE_FIRST):
        if "app" in table.c:
            ours = table.c.app == app
        else:
            ours = (table.c.consumer > f"{app}.") & (table.c.consumer < f"{app}/")  # "/" follows "."
        key = None if table in _OF_THE_FIRST else table.c.key
        yield _Part(table, key, ours, anywhere=table in _OF_THEIR_MAKERS)


def _parts_of_users(engine: Engine, tables: Mapping[str, str]) -> Iterator[_Part]:
    for name, column in tables.items():
        schema, _, last = name.rpartition(".")
        try:
            table = Table(last, MetaData(), schema=schema or None, autoload_with=engine)
        except NoSuchTableError:
            raise ConfigError([f"there is no table {name} in {place(engine)}"]) from None
        if column not in table.c:
            raise ConfigError([f"table {name} has no column {column}"])
        if not table.primary_key.columns:
            raise ConfigError([f"table {name} has no primary key, so its rows cannot be compared: add one"])
        yield _Part(table, table.c[column])


def _on_shard(
    engines: Sequence[Engine], layout: Layout, part: _Part, number: int, *, keep: bool
) -> tuple[int, int]:
    """Return how many rows of a shard stay and go."""
    identity, stays, goes = list(part.table.primary_key.columns), 0, 0
    after: tuple[Any, ...] | None = None
    while True:
        with engines[number].connect() as connection:
            page = _page(connection, part, identity, after)
            if not page:
                return stays, goes
            rows = [tuple(row) for *row, _ in page]
            away = (
                _copies(engines[:number], part, rows)
                if part.anywhere
                else _of_others(engines, layout, part, number, page)
            )
            if away and keep:
                connection.execute(
                    delete(part.table).where(_among(identity, [row[: len(identity)] for row in away]))
                )
            connection.commit()
        stays, goes, after = stays + len(page) - len(away), goes + len(away), rows[-1][: len(identity)]


def _of_others(
    engines: Sequence[Engine], layout: Layout, part: _Part, number: int, page: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return the rows that belong to other shards.

    Raises:
        ConfigError: a shard does not have one that belongs to it.
    """
    away: dict[int, list[tuple[Any, ...]]] = {}
    for *row, key in page:
        owner = 0 if part.key is None else layout.shard_of("" if key is None else str(key))
        if owner != number:
            away.setdefault(owner, []).append(tuple(row))
    for owner, rows in away.items():
        missing = set(rows).difference(_there(engines[owner], part, rows))
        if missing:
            name, example = part.table.fullname, min(map(str, missing))
            what = (
                f"{len(missing)} rows of {name} in {place(engines[number])} belong to {place(engines[owner])}"
            )
            lacks = f"{what}, which does not have them, such as {example}"
            raise ConfigError([f"{lacks}: they were not deleted; copy the whole database there first"])
    return [row for rows in away.values() for row in rows]


def _copies(earlier: Sequence[Engine], part: _Part, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that an earlier shard has, too: it keeps them."""
    known = {row for engine in earlier for row in _there(engine, part, rows)}
    return [row for row in rows if row in known]


def _there(engine: Engine, part: _Part, rows: Sequence[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Return those of `rows` that a shard has."""
    identity = list(part.table.primary_key.columns)
    wanted = [row[: len(identity)] for row in rows]
    with engine.connect() as connection:
        found = connection.execute(select(*part.same).where(_among(identity, wanted)))
        return set(rows).intersection(map(tuple, found))


def _page(
    connection: Connection, part: _Part, identity: Sequence[Column[Any]], after: tuple[Any, ...] | None
) -> Sequence[Any]:
    key = identity[0] if part.key is None else part.key
    found = select(*part.same, key.label("key_of_it")).order_by(*identity).limit(_BATCH)
    if part.ours is not None:
        found = found.where(part.ours)
    if after is not None:
        later = identity[0] > after[0] if len(identity) == 1 else tuple_(*identity) > tuple_(*after)
        found = found.where(later)
    return connection.execute(found).all()


def _among(identity: Sequence[Column[Any]], rows: Sequence[tuple[Any, ...]]) -> ColumnElement[bool]:
    if len(identity) == 1:
        return identity[0].in_([row[0] for row in rows])
    return tuple_(*identity).in_(list(rows))
