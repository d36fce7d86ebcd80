"""Owners of consumer groups, one consumer of one app each: two owners would apply every effect twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from sqlalchemy import Column, Connection, select

from oncemq.ledger.sql.column_types import ExactText, Moment
from oncemq.ledger.sql.tables import CONSUMER_SIZE, ledger_table
from oncemq.ledger.sql.upsert import upsert

_NAME_SIZE = 512
_BROKER_SIZE = 255

TABLE = ledger_table(
    "groups",
    Column("name", ExactText(_NAME_SIZE), primary_key=True),
    Column("broker", ExactText(_BROKER_SIZE), primary_key=True),
    Column("owner", ExactText(CONSUMER_SIZE), nullable=False),
    Column("since", Moment, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Owned:
    """A place and its owner.

    Args:
        name: of the place on the broker, such as a queue.
        broker: the broker's address.
        owner: `app.consumer`.
    """

    name: str
    broker: str
    owner: str


def owners(connection: Connection, names: Sequence[str]) -> list[Owned]:
    """Return the owners of places with these names, on any broker."""
    wanted = sorted({_within(name, _NAME_SIZE) for name in names})
    found = select(TABLE.c.name, TABLE.c.broker, TABLE.c.owner).where(TABLE.c.name.in_(wanted))
    return [Owned(*row) for row in connection.execute(found.order_by(TABLE.c.name, TABLE.c.broker))]


def enter(connection: Connection, places: Sequence[Owned], at: datetime) -> None:
    """Store the owners of places that have none; existing owners stay."""
    for row in _rows(places, at):
        upsert(connection, TABLE, row, {"name": row["name"]})


def take(connection: Connection, places: Sequence[Owned], at: datetime) -> None:
    """Make these the owners, replacing previous ones."""
    for row in _rows(places, at):
        upsert(connection, TABLE, row, {"owner": row["owner"], "since": at})


def stored(place: Owned) -> Owned:
    """Return a place as the table stores it: a text too long for an index is cut and gets a hash."""
    return Owned(_within(place.name, _NAME_SIZE), _within(place.broker, _BROKER_SIZE), place.owner)


def _rows(places: Sequence[Owned], at: datetime) -> list[dict[str, object]]:
    # Sorted, so that two processes that start together lock the rows in the same order.
    short = sorted((stored(place) for place in places), key=lambda place: (place.name, place.broker))
    return [
        {"name": place.name, "broker": place.broker, "owner": place.owner, "since": at} for place in short
    ]


def _within(text: str, size: int) -> str:
    raw = text.encode()
    if len(raw) <= size:
        return text
    digest = blake2b(raw, digest_size=16).hexdigest()
    return raw[: size - len(digest)].decode(errors="ignore") + digest
