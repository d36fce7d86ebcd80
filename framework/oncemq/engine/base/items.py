"""Makes the items of a run from its deliveries."""

from collections.abc import Sequence

from oncemq.contracts.unit import Item
from oncemq.errors import StrategyBug
from oncemq.message.envelope import Delivery
from oncemq.message.reader import Reader


def make_items(deliveries: Sequence[Delivery], reader: Reader) -> list[Item]:
    """Return fresh items; the payload decoded at intake serves the first run, later ones decode anew."""
    return [make_item(delivery, reader) for delivery in deliveries]


def make_item(delivery: Delivery, reader: Reader) -> Item:
    """Return a fresh item of one delivery."""
    envelope, payload = delivery.envelope, delivery.payload
    if envelope is None:
        raise StrategyBug(f"{delivery!r} was never understood")
    if payload is None:
        payload = reader.decode(delivery.message)
    delivery.payload = None
    return Item(delivery, envelope, payload)
