"""Finds and moves ledger rows of consumers that were renamed or removed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Column, Connection, Table, delete, func, select, update

from oncemq.ledger.coordination import broadcast, groups, pauses
from oncemq.ledger.coordination.groups import Owned
from oncemq.ledger.messages import dead_letters, parking
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
from oncemq.ledger.records import (
    exclusive_units as lanes,
)
from oncemq.ledger.records import (
    row_mutexes as locked_rows,
)

PUBLISHER = "publisher"
"""Ledger name for messages published outside of handlers; not a consumer's."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A table with rows of consumers.

    Args:
        table: the table.
        scope: the column of the consumer.
        within: the columns that are unique within a consumer; None if there is no such limit.
        age: the column that tells which of two rows is later; None = the consumer's own row stays.
        noun: a row's name for people; empty if its loss does not matter.
    """

    table: Table
    scope: Column[str]
    within: Column[str] | None = None
    age: Column[object] | None = None
    noun: str = ""


_KEPT = (
    _Kept(processed.TABLE, processed.TABLE.c.consumer, processed.TABLE.c.identity, None, "record"),
    _Kept(claims.TABLE, claims.TABLE.c.consumer, claims.TABLE.c.identity, None, "claim"),
    _Kept(states.TABLE, states.TABLE.c.consumer, states.TABLE.c.key, states.TABLE.c.changed_at, "state"),
    _Kept(
        sequences.TABLE,
        sequences.TABLE.c.consumer,
        sequences.TABLE.c.key,
        sequences.TABLE.c.moved_at,
        "number",
    ),
    _Kept(
        key_fingerprints.TABLE,
        key_fingerprints.TABLE.c.consumer,
        key_fingerprints.TABLE.c.key,
        key_fingerprints.TABLE.c.taken_at,
    ),
    _Kept(broadcast.TABLE, broadcast.TABLE.c.consumer, broadcast.TABLE.c.topic),
    _Kept(final_failures.TABLE, final_failures.TABLE.c.consumer, final_failures.TABLE.c.identity),
    _Kept(suspects.TABLE, suspects.TABLE.c.consumer, suspects.TABLE.c.identity),
    _Kept(parking.TABLE, parking.TABLE.c.consumer, noun="parked message"),
    _Kept(dead_letters.TABLE, dead_letters.TABLE.c.consumer, noun="dead letter"),
    _Kept(history.TABLE, history.TABLE.c.consumer),
    _Kept(audit.TABLE, audit.TABLE.c.consumer),
    _Kept(pauses.TABLE, pauses.TABLE.c.consumer, pauses.TABLE.c.kind),
    _Kept(lanes.TABLE, lanes.TABLE.c.consumer, lanes.TABLE.c.consumer),
    _Kept(locked_rows.TABLE, locked_rows.TABLE.c.scope, locked_rows.TABLE.c.key),
)


@dataclass(frozen=True, slots=True)
class Left:
    """Ledger contents under one name.

    Args:
        scope: `app.consumer`.
        rows: number of rows of each kind, by their noun; counted up to a bound.
        places: places on brokers that this name owns.
        gone: no consumer has this name; otherwise a consumer has left the places.
    """

    scope: str
    rows: dict[str, int]
    places: tuple[Owned, ...]
    gone: bool = True


_TOGETHER = 500
MOST_COUNTED = 10_000
"""Rows are counted up to this number; a table may hold millions."""


def move(connection: Connection, former: str, scope: str) -> int:
    """Move rows of the scope `former` to `scope`; returns how many. If both have a row, the later one stays.

    Published messages that are not sent yet are not changed: any process sends them.
    """
    moved = 0
    for kept in _KEPT:
        if kept.within is not None:
            _drop_doubles(connection, kept, former, scope)
        renamed = update(kept.table).where(kept.scope == former).values({kept.scope.name: scope})
        moved += connection.execute(renamed).rowcount
    owned = groups.TABLE
    connection.execute(update(owned).where(owned.c.owner == former).values(owner=scope))
    return moved


def remove(connection: Connection, scope: str) -> int:
    """Delete all rows of a scope, but not its owned places; returns how many."""
    return sum(connection.execute(delete(kept.table).where(kept.scope == scope)).rowcount for kept in _KEPT)


def disown(connection: Connection, places: Sequence[Owned]) -> None:
    """Delete the owners of places."""
    owned = groups.TABLE.c
    for place in places:
        here = (owned.name == place.name) & (owned.broker == place.broker) & (owned.owner == place.owner)
        connection.execute(delete(groups.TABLE).where(here))


def holds(connection: Connection, scope: str) -> bool:
    """Return whether the ledger has any row of a scope, owned places included."""
    columns = [*(kept.scope for kept in _KEPT), groups.TABLE.c.owner]
    return any(
        connection.execute(select(column).where(column == scope).limit(1)).first() is not None
        for column in columns
    )


def scopes(connection: Connection, app: str) -> list[str]:
    """Return all scopes of the app with rows in the ledger, sorted."""
    prefix = f"{app}."
    found: set[str] = set()
    for column in (*(kept.scope for kept in _KEPT), groups.TABLE.c.owner):
        # One index lookup for each name: a table may hold millions of rows.
        last = prefix
        while True:
            later = select(func.min(column)).where(column > last)
            name = connection.execute(later).scalar()
            if name is None or not str(name).startswith(prefix):
                break
            last = str(name)
            found.add(last)
    return sorted(found - {f"{prefix}{PUBLISHER}"})


def left_by(connection: Connection, scope: str, *, rows: bool = True) -> Left:
    """Return the ledger contents under a name; without `rows` only its places."""
    counts = {}
    for kept in _KEPT:
        if kept.noun and rows:
            some = select(kept.scope).where(kept.scope == scope).limit(MOST_COUNTED).subquery()
            count = connection.execute(select(func.count()).select_from(some)).scalar_one()
            if count:
                counts[kept.noun] = count
    owned = groups.TABLE.c
    places = select(owned.name, owned.broker, owned.owner).where(owned.owner == scope).order_by(owned.name)
    return Left(scope, counts, tuple(Owned(*row) for row in connection.execute(places)))


def _drop_doubles(connection: Connection, kept: _Kept, former: str, scope: str) -> None:
    """Delete the earlier row of each name that has a row under both scopes."""
    within = kept.within
    if within is None:
        return
    if within is kept.scope:
        connection.execute(delete(kept.table).where(kept.scope == former))
        return
    later = _later(connection, kept, former, scope)
    for start in range(0, len(later), _TOGETHER):
        some = within.in_(later[start : start + _TOGETHER])
        connection.execute(delete(kept.table).where(kept.scope == scope, some))
    # A derived table: MySQL cannot read a table that it is deleting from.
    ours = select(within.label("name")).where(kept.scope == scope).subquery()
    connection.execute(delete(kept.table).where(kept.scope == former, within.in_(select(ours.c.name))))


def _later(connection: Connection, kept: _Kept, former: str, scope: str) -> Sequence[str]:
    """Return the names whose row of `former` is the later one."""
    if kept.age is None or kept.within is None:
        return []
    ours, theirs = kept.table.alias("ours"), kept.table.alias("theirs")
    name, owner, age = kept.within.name, kept.scope.name, kept.age.name
    found = select(theirs.c[name]).where(
        theirs.c[owner] == former,
        ours.c[owner] == scope,
        ours.c[name] == theirs.c[name],
        theirs.c[age] > ours.c[age],
    )
    return list(connection.scalars(found))
