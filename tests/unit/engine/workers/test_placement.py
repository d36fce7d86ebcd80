"""Units of a take where routes have chains of strategies of their own."""

from itertools import pairwise

import pytest

from oncemq.common.sharding import Layout
from oncemq.engine.workers.placement import Placement
from oncemq.message.envelope import Delivery, Message


def taken(*wanted: tuple[str, int]) -> list[Delivery]:
    """Return deliveries of these keys and routes."""
    found = []
    for number, (key, route) in enumerate(wanted):
        delivery = Delivery(Message("orders", str(number).encode()))
        delivery.key, delivery.route = key, route
        found.append(delivery)
    return found


def shown(units: list[list[Delivery]]) -> list[list[str]]:
    """Return the units' messages by their numbers."""
    return [[delivery.message.body.decode() for delivery in unit] for unit in units]


def test_messages_of_one_chain_are_one_unit_whatever_stands_between_them() -> None:
    """So routes cost as few transactions as they can."""
    deliveries = taken(("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", 2))
    assert shown(list(Placement(None, (0, 1, 0)).units(deliveries, 500))) == [["0", "2", "4"], ["1", "3"]]


def test_a_message_never_runs_before_an_earlier_one_of_its_key() -> None:
    """Also where that one has another chain."""
    deliveries = taken(("a", 1), ("a", 0), ("b", 0), ("a", 1), ("b", 1))
    units = list(Placement(None, (0, 1)).units(deliveries, 500))
    assert shown(units) == [["2"], ["0", "4"], ["1"], ["3"]]


def test_a_unit_has_at_most_as_many_messages_as_its_limit() -> None:
    """More are several units."""
    deliveries = taken(*((f"k{number}", number % 2) for number in range(10)))
    units = list(Placement(None, (0, 1)).units(deliveries, 2))
    assert [len(unit) for unit in units] == [2, 2, 1, 2, 2, 1]


@pytest.mark.parametrize("layout", [None, Layout.even(2)])
def test_every_message_is_in_one_unit_of_its_place_in_the_order_of_its_key(layout: Layout | None) -> None:
    """On each shard, through each chain."""
    deliveries = taken(*((f"k{number % 7}", number * number % 3) for number in range(200)))
    placement = Placement(layout, (0, 1, 2))
    place = placement.select(range(placement.places))
    units = list(placement.units(deliveries, 20))
    assert sorted(map(id, (each for unit in units for each in unit))) == sorted(map(id, deliveries))
    assert all(len({place(delivery) for delivery in unit}) == 1 for unit in units)
    for key in {delivery.key for delivery in deliveries}:
        numbers = [int(each.message.body) for unit in units for each in unit if each.key == key]
        assert all(first < second for first, second in pairwise(numbers))
