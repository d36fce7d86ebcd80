"""Requests of which nobody knows whether they took effect: looked at by a person, who may let them come again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, select

from oncemq.ledger.records.requests import TABLE, State, has_key

_SHOWN = ("scope", "identity", "until", "changed_at")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which requests are meant; what is not given does not restrict.

    Args:
        ledger: the name of the ledger of requests.
        ids: identities, as they are listed.
        key: the caller's key; an identity that is kept as a digest tells no key.
    """

    ledger: str | None = None
    ids: frozenset[str] = frozenset()
    key: str | None = None


def listed(connection: Connection, chosen: Chosen, now: datetime, limit: int) -> list[dict[str, object]]:
    """Return those whose effects are outside and whose lease is over, longest first; without answers."""
    rows = select(*(TABLE.c[name] for name in _SHOWN)).where(*_unknown(chosen, now))
    found = rows.order_by(TABLE.c.until, TABLE.c.scope, TABLE.c.identity).limit(limit)
    return [dict(row) for row in connection.execute(found).mappings()]


def clear(connection: Connection, chosen: Chosen, now: datetime) -> int:
    """Forget them, so that the next request with that key is carried out; returns how many.

    What somebody is finding out about just now has a lease again, and stays.

    Args:
        connection: the transaction.
        chosen: which ones.
        now: aware.
    """
    return connection.execute(delete(TABLE).where(*_unknown(chosen, now))).rowcount


def count_held(connection: Connection, chosen: Chosen, now: datetime) -> int:
    """Return how many somebody still carries out, or finds out about, as their leases say."""
    held = select(func.count()).where(*_exposed(chosen), TABLE.c.until > now)
    return connection.execute(held).scalar_one()


def _unknown(chosen: Chosen, now: datetime) -> Sequence[ColumnElement[bool]]:
    return [*_exposed(chosen), TABLE.c.until <= now]


def _exposed(chosen: Chosen) -> Sequence[ColumnElement[bool]]:
    found = [TABLE.c.state == State.EXPOSED.value]
    if chosen.ledger is not None:
        found.append(TABLE.c.scope == chosen.ledger)
    if chosen.ids:
        found.append(TABLE.c.identity.in_(sorted(chosen.ids)))
    if chosen.key is not None:
        found.append(has_key(chosen.key))
    return found
