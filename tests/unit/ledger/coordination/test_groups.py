"""Owners of consumer groups in the ledger."""

from datetime import UTC, datetime

from sqlalchemy import Engine

from oncemq.ledger.coordination import groups
from oncemq.ledger.coordination.groups import Owned

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ORDERS = Owned("queue loyalty.orders", "10.0.0.1:5672/", "shop.award")


def test_the_first_owner_keeps_a_place(engine: Engine) -> None:
    """Another consumer's entry changes nothing; the same place on another broker is another row."""
    with engine.begin() as connection:
        groups.enter(connection, [ORDERS], NOW)
        groups.enter(connection, [Owned(ORDERS.name, ORDERS.broker, "copy.award")], NOW)
        groups.enter(connection, [Owned(ORDERS.name, "elsewhere", "copy.award")], NOW)
        found = groups.owners(connection, [ORDERS.name, "queue other"])
    assert found == [ORDERS, Owned(ORDERS.name, "elsewhere", "copy.award")]


def test_a_place_can_be_taken(engine: Engine) -> None:
    """Taking makes the new owner the only one."""
    taken = Owned(ORDERS.name, ORDERS.broker, "copy.award")
    with engine.begin() as connection:
        groups.enter(connection, [ORDERS], NOW)
        groups.take(connection, [taken], NOW)
        assert groups.owners(connection, [ORDERS.name]) == [taken]


def test_names_that_are_long_are_told_apart(engine: Engine) -> None:
    """What differs behind the size of an index is still another place."""
    places = [Owned("q" * 2000 + last, "broker" * 100, f"shop.{last}") for last in "ab"]
    with engine.begin() as connection:
        groups.enter(connection, places, NOW)
        found = groups.owners(connection, [places[1].name])
    assert [place.owner for place in found] == ["shop.b"]
    assert found == [groups.stored(places[1])]
