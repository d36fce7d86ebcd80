"""Shard and layout of each database, for each app: checked at every start, since a key must never move."""

from collections.abc import Sequence

from sqlalchemy import Column, ColumnElement, Connection, Engine, Integer, Table, and_, insert, select, update

from oncemq.common.sharding import Layout
from oncemq.errors import LedgerError
from oncemq.ledger.database.connect import place
from oncemq.ledger.database.schema_lock import changing_schema
from oncemq.ledger.messages import delayed, outbox, parking
from oncemq.ledger.records import claims, final_failures, key_fingerprints, processed, sequences, states
from oncemq.ledger.sql.column_types import ExactText, LongText
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table

TABLE = ledger_table(
    "shards",
    Column("app", ExactText(CONSUMER_SIZE), primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("shards", Integer, nullable=False),
    Column("slots", LongText, nullable=False),
)

_OF_KEYS = (
    parking.TABLE,
    processed.TABLE,
    states.TABLE,
    sequences.TABLE,
    claims.TABLE,
    key_fingerprints.TABLE,
    final_failures.TABLE,
)
"""Tables whose rows are on the shard of their key."""

_Fields = tuple[int, int, str]


def ensure(engines: Sequence[Engine], app: str, layout: Layout | None) -> None:
    """Check that every database is the same shard as before.

    Raises:
        LedgerError: it is not, or was never recorded; says what to do.
    """
    for number, engine in enumerate(engines):
        with engine.begin() as connection:
            stored = _stored(connection, app)
        wanted = _wanted(layout, number)
        if stored == wanted:
            continue
        if layout is not None:
            _require_split(engines, app, layout, number)
        if stored is None:
            raise LedgerError(f"{place(engine)} is not a shard of {app} yet: run `oncemq tables create`")
        raise LedgerError(_differs(engine, app, stored, wanted))


def create(engines: Sequence[Engine], app: str, layout: Layout | None) -> list[str]:
    """Record for every database which shard it is; returns a line for each that had no record.

    Raises:
        LedgerError: a database is already another shard, holds the app's records from before sharding, or rows that belong
            to another shard.
    """
    done = []
    _require_all_split(engines, app, layout)
    for number, engine in enumerate(engines):
        wanted = _wanted(layout, number)
        with changing_schema(engine) as connection:
            stored = _stored(connection, app)
            if stored == wanted:
                continue
            if stored is not None or wanted is None:
                raise LedgerError(_differs(engine, app, stored, wanted))
            if layout is not None and not layout.chosen and _has_records(connection, app):
                raise LedgerError(_was_whole(engine, app))
            connection.execute(insert(TABLE).values(_row(app, wanted)))
        done.append(f"{place(engine)} is shard {number} of {app}, with slots {wanted[2]}")
    return done


def upgrade(engines: Sequence[Engine], app: str, layout: Layout | None) -> list[str]:
    """Record a layout that was chosen explicitly, after the rows have been moved; returns a line for each change.

    Raises:
        LedgerError: the layout differs, and was not chosen explicitly, or a database holds rows that belong to another shard.
    """
    if layout is None or not layout.chosen:
        return create(engines, app, layout)
    done = []
    _require_all_split(engines, app, layout)
    for number, engine in enumerate(engines):
        wanted = _wanted(layout, number)
        with changing_schema(engine) as connection:
            stored = _stored(connection, app)
            if wanted is None or stored == wanted:
                continue
            if stored is None:
                connection.execute(insert(TABLE).values(_row(app, wanted)))
            else:
                connection.execute(update(TABLE).where(TABLE.c.app == app).values(_row(app, wanted)))
        done.append(f"{place(engine)} is now shard {number} of {app}, with slots {wanted[2]}")
    return done


def record(engines: Sequence[Engine], app: str, layout: Layout) -> None:
    """Record for every database which shard it is, once each has the rows of its slots."""
    for number, engine in enumerate(engines):
        fields = _row(app, (number, layout.shards, layout.slots(number)))
        with changing_schema(engine) as connection:
            if _stored(connection, app) is None:
                connection.execute(insert(TABLE).values(fields))
            else:
                connection.execute(update(TABLE).where(TABLE.c.app == app).values(fields))


def _wanted(layout: Layout | None, number: int) -> _Fields | None:
    return None if layout is None else (number, layout.shards, layout.slots(number))


def _row(app: str, fields: _Fields) -> dict[str, object]:
    return {"app": app, "shard": fields[0], "shards": fields[1], "slots": fields[2]}


def _stored(connection: Connection, app: str) -> _Fields | None:
    row = connection.execute(
        select(TABLE.c.shard, TABLE.c.shards, TABLE.c.slots).where(TABLE.c.app == app)
    ).first()
    return None if row is None else (row.shard, row.shards, row.slots)


def _has_records(connection: Connection, app: str) -> bool:
    first, last = f"{app}.", f"{app}/"  # "/" follows "." in every encoding
    kept: list[tuple[Table, ColumnElement[bool]]] = [
        (table, and_(table.c.consumer > first, table.c.consumer < last)) for table in _OF_KEYS
    ]
    kept += [(table, table.c.app == app) for table in (outbox.TABLE, delayed.TABLE)]
    return any(
        connection.execute(select(table.c.consumer).where(ours).limit(1)).first() for table, ours in kept
    )


def _require_all_split(engines: Sequence[Engine], app: str, layout: Layout | None) -> None:
    """Require of every database that is to become another shard that its rows belong there; as `_require_split`."""
    if layout is None:
        return
    for number, engine in enumerate(engines):
        with engine.connect() as connection:
            stored = _stored(connection, app)
        if (stored is not None or layout.chosen) and stored != _wanted(layout, number):
            _require_split(engines, app, layout, number)


def _require_split(engines: Sequence[Engine], app: str, layout: Layout, number: int) -> None:
    """Require that all rows with a key on one shard belong there.

    Raises:
        LedgerError: one does not; says whether the database was copied and not split, or not copied to where it belongs.
    """
    for table in _OF_KEYS:
        ours = (table.c.consumer > f"{app}.") & (table.c.consumer < f"{app}/")
        with engines[number].connect() as connection:
            keys = connection.execution_options(yield_per=1000).execute(select(table.c.key).where(ours))
            away = next((key for (key,) in keys if layout.shard_of(key or "") != number), None)
            keys.close()
        if away is None:
            continue
        owner = engines[layout.shard_of(away)]
        with owner.connect() as connection:
            there = connection.execute(select(table.c.key).where(ours, table.c.key == away).limit(1)).first()
        what = f"{place(engines[number])} has rows of {app} that belong to {place(owner)}, such as key {away!r} in {table.name}"
        if there is None:
            raise LedgerError(
                f"{what}, and they are not there: duplicates would take effect. Copy the whole database there and run "
                "`oncemq tables split`"
            )
        raise LedgerError(
            f"{what}, and they are there, too: it was copied, but not split yet, and messages that wait on both would take "
            "effect on both. Run `oncemq tables split`"
        )


def _differs(engine: Engine, app: str, stored: _Fields | None, wanted: _Fields | None) -> str:
    return (
        f"{place(engine)} is {_words(stored)} of {app}, but the configuration makes it {_words(wanted)}: keys would be "
        "looked for where they are not, and duplicates take effect. Write the shards in their old order and number; to "
        "change them, stop the app, copy the shard whose slots change hands to the new one, write slots: under database and "
        "type `oncemq tables split`"
    )


def _words(fields: _Fields | None) -> str:
    if fields is None:
        return "the only database"
    return f"shard {fields[0]} of {fields[1]} (slots {fields[2]})"


def _was_whole(engine: Engine, app: str) -> str:
    return (
        f"{place(engine)} holds records of {app} from before it was sharded: those of keys that now belong elsewhere "
        "would not be found, and duplicates take effect. Copy the whole database to every shard and run `oncemq tables split`, "
        "or leave all slots where they are, and write slots: under database"
    )
